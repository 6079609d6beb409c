"""What a user may say about the source, as options of the changefeed."""

from dataclasses import dataclass

from cdc_core.options import MB, ByteSize, Duration, option


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    idle_interval: Duration = option(Duration(1.0), doc="How often an idle journal's clock is read.")
    batch_bytes: ByteSize = option(ByteSize(4 * MB), doc="About how much of the journal makes a batch of rows.")
