"""The options of the sink: options of the changefeed, or parameters of the sink URI."""

from dataclasses import dataclass

from cdc_core import Duration, option


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    busy_timeout: Duration = option(Duration(10.0), doc="How long to wait for another writer to finish.")
