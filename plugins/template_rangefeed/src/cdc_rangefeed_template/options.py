"""The options of the source, which are options of the changefeed."""

from dataclasses import dataclass

from cdc_core import MB, ByteSize, Duration, option


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    idle_interval: Duration = option(Duration(1.0), doc="How often the clock of an idle source is read.")
    batch_bytes: ByteSize = option(ByteSize(4 * MB), doc="Approximate size of a batch of rows.")
