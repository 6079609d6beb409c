"""Registers the source. Every `cdc` command imports this module, so it imports no client library."""

from collections.abc import Iterator

from cdc_core import RangefeedRegistration, hookimpl


@hookimpl
def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
    yield RangefeedRegistration(
        name="template",
        schemes=("template",),
        rangefeed="cdc_rangefeed_template.rangefeed:TemplateRangefeed",
        planner="cdc_rangefeed_template.planner:TemplatePlanner",
        reader="cdc_rangefeed_template.reader:TemplateReader",
        options="cdc_rangefeed_template.options:TemplateOptions",
        writer="cdc_rangefeed_template.writer:TemplateWriter",
        temporary=True,
        summary="Reads changes from template",
    )
