"""Registers the sink. Every `cdc` command imports this module, so it imports no client library."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="template",
        schemes=("template",),
        sink="cdc_sink_template.sink:TemplateSink",
        resolved_sink="cdc_sink_template.resolved_sink:TemplateResolvedSink",
        destination="cdc_sink_template.destination:TemplateDestination",
        reader="cdc_sink_template.reader:TemplateReader",
        options="cdc_sink_template.options:TemplateOptions",
        output="messages",
        summary="Writes messages and resolved marks to template",
    )
