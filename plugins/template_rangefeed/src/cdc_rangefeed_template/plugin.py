"""Says what this package brings. Runs in every `cdc` command, so it imports no client library."""

from collections.abc import Iterator

from cdc_core import RangefeedRegistration, hookimpl


@hookimpl
def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
    yield RangefeedRegistration(
        name="template",
        schemes=("template",),
        target="cdc_rangefeed_template.rangefeed:TemplateRangefeed",
        options="cdc_rangefeed_template.options:TemplateOptions",
        writer="cdc_rangefeed_template.writer:TemplateWriter",
        summary="A file with a line for each transaction",
    )
