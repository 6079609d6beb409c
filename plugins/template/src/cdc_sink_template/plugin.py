"""Says what this package brings. Runs in every `cdc` command, so it imports no client library."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="template",
        schemes=("template",),
        target="cdc_sink_template.sink:TemplateSink",
        options="cdc_sink_template.options:TemplateOptions",
        reader="cdc_sink_template.reader:TemplateReader",
        output="messages",
        summary="Messages and resolved marks in one table of a SQLite file, in order",
    )
