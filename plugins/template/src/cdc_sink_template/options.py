"""What a user may say about the sink, as options of the changefeed or as parameters of its URI."""

from dataclasses import dataclass

from cdc_core.options import MB, ByteSize, Duration, option


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    topic_prefix: str = option("", doc="Text put before every topic.")
    buffer_size: ByteSize = option(
        ByteSize(8 * MB), doc="Bytes of messages that each writer gathers before it writes them in one transaction."
    )
    busy_timeout: Duration = option(
        Duration(10.0), doc="How long to wait for other writers of the file before the step is put off."
    )
