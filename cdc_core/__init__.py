"""Change data capture on Spark: the contracts that plugins implement and the values that pass between them.

Public is what this module exports. Importing it imports neither pyspark nor any plugin or client library.
"""

from cdc_core.config.changefeed import Changefeed
from cdc_core.decoder import DecodedRow, Decoder
from cdc_core.encoder import Encoder, EncoderContext, EnvelopeOptions, FileBody
from cdc_core.errors import (
    BadRowError,
    CdcError,
    ConfigError,
    ContractError,
    EncodeError,
    HistoryLostError,
    OptionError,
    PartialWriteError,
    RefusedRowsError,
    RetryableError,
    RetryableRangefeedError,
    RetryableSinkError,
    TerminalError,
    TerminalRangefeedError,
    TerminalSinkError,
)
from cdc_core.frontier import Frontier
from cdc_core.hookspecs import hookimpl
from cdc_core.messages import MessageBatch, TopicNames
from cdc_core.rangefeed import Mark, Rangefeed, RangefeedContext, ScanProgress, Slice, StepLimit, Token
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration, SinkRegistration
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import Column, ColumnType, Kind, TableName, TableSchema
from cdc_core.sink import Covered, Flushed, Sink, SinkContext, SliceInfo
from cdc_core.sink_reader import Endpoint, SinkReader, StoredMessage
from cdc_core.source_writer import SourceTransaction, SourceWriter, SourceWriterContext
from cdc_core.span import Span
from cdc_core.stored_history import StoredFile, StoredHistory
from cdc_core.telemetry.stages import repeating
from cdc_core.timestamp import Timestamp

__all__ = [
    "BadRowError",
    "CdcError",
    "Changefeed",
    "Column",
    "ColumnType",
    "ConfigError",
    "ContractError",
    "Covered",
    "DecodedRow",
    "Decoder",
    "EncodeError",
    "Encoder",
    "EncoderContext",
    "EncoderRegistration",
    "Endpoint",
    "EnvelopeOptions",
    "FileBody",
    "Flushed",
    "Frontier",
    "HistoryLostError",
    "Kind",
    "Mark",
    "MessageBatch",
    "Op",
    "OptionError",
    "PartialWriteError",
    "Rangefeed",
    "RangefeedContext",
    "RangefeedRegistration",
    "RefusedRowsError",
    "RetryableError",
    "RetryableRangefeedError",
    "RetryableSinkError",
    "RowBatch",
    "ScanProgress",
    "Sink",
    "SinkContext",
    "SinkReader",
    "SinkRegistration",
    "Slice",
    "SliceInfo",
    "SourceTransaction",
    "SourceWriter",
    "SourceWriterContext",
    "Span",
    "StepLimit",
    "StoredFile",
    "StoredHistory",
    "StoredMessage",
    "TableName",
    "TableSchema",
    "TerminalError",
    "TerminalRangefeedError",
    "TerminalSinkError",
    "Timestamp",
    "Token",
    "TopicNames",
    "hookimpl",
    "repeating",
]
