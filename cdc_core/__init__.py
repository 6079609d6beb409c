"""Change data capture on Spark: the contracts that plugins implement and the values that pass between them.

Everything that the author of a plugin or of an embedding program needs is exported here, and nothing else is public.
Each name is imported from its module when it is first used: a process that writes files, for example, needs neither the
parser of queries nor the store. So importing this module imports nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_core.cloudevents import EVENT_TYPE, EVENTS_TYPE, Attributes, CloudEvents, each_event
    from cdc_core.config.changefeed import Changefeed
    from cdc_core.decoder import DecodedRow, Decoder, plain_value
    from cdc_core.destination import Destination
    from cdc_core.encoder import Encoder
    from cdc_core.encoder_context import EncoderContext
    from cdc_core.enriched import SOURCE_MEMBERS, SourceFacts, op_of, op_texts, timestamps_of_source
    from cdc_core.envelope import METADATA_MEMBER, DeleteForm, Envelope, RowPlace
    from cdc_core.errors import (
        START_OVER,
        BadRowError,
        CdcError,
        ConfigError,
        ContractError,
        DestinationLostError,
        EncodeError,
        HistoryLostError,
        OptionError,
        PluginLoadError,
        RefusedRowsError,
        RestartError,
        RetryableError,
        RetryableRangefeedError,
        RetryableSinkError,
        RowError,
        TerminalError,
        TerminalRangefeedError,
        TerminalSinkError,
    )
    from cdc_core.file_body import FileBody, NewlineBody, joined_lines, joined_values
    from cdc_core.frontier import Frontier
    from cdc_core.function_registration import FunctionRegistration
    from cdc_core.hookspecs import hookimpl
    from cdc_core.locality import Locality
    from cdc_core.masking import mask, masked_uri, secret_forms, uri_secrets
    from cdc_core.messages import MessageBatch, TopicNames
    from cdc_core.options import (
        MB,
        ByteSize,
        Duration,
        counted,
        did_you_mean,
        format_duration,
        option,
        parse_options,
        secret_values,
    )
    from cdc_core.placement import (
        Place,
        PlacementRules,
        Replica,
        ReplicatedSpan,
        assign_spans,
        closest_replica,
        executor_locality,
    )
    from cdc_core.rangefeed import Rangefeed
    from cdc_core.rangefeed_context import RangefeedContext
    from cdc_core.rangefeed_values import Move, Rescan, ScanProgress, SourceObjects, Token
    from cdc_core.readback.reader import ChangeReader
    from cdc_core.registrations import EncoderRegistration, RangefeedRegistration
    from cdc_core.remedies import ALL_AGAIN, LIST_AGAIN, RUN_AGAIN
    from cdc_core.resolved_sink import Covered, ResolvedSink
    from cdc_core.restriction import Comparison, Restriction
    from cdc_core.rows import Op, RowBatch, RowColumns, shown_key
    from cdc_core.schema import Column, ColumnType, Kind, TableName, TableSchema
    from cdc_core.schema_change import SchemaChange, SchemaChangeRules, ShapeChange
    from cdc_core.sink import Flushed, RefusedRow, Sink, SliceInfo
    from cdc_core.sink_calls import TracedRow
    from cdc_core.sink_context import SinkContext
    from cdc_core.sink_reader import Endpoint, SinkReader, StoredMessage
    from cdc_core.sink_registration import SinkRegistration
    from cdc_core.slice_reader import SliceReader, SpanMark
    from cdc_core.source_history import SourceHistory
    from cdc_core.source_writer import SourceTransaction, SourceWriter, SourceWriterContext
    from cdc_core.span import Span
    from cdc_core.step_planner import Slice, StepLimit, StepPlanner
    from cdc_core.stored_history import FileShape, StoredFile, StoredHistory
    from cdc_core.timestamp import Timestamp
    from cdc_core.unavailable import (
        UNAVAILABLE_MEMBER,
        refuse_unavailable,
        unavailable_by_column,
        unavailable_column,
        unavailable_sets,
    )
    from cdc_core.watching.watch import watch

__all__ = [
    "ALL_AGAIN",
    "EVENTS_TYPE",
    "EVENT_TYPE",
    "LIST_AGAIN",
    "MB",
    "METADATA_MEMBER",
    "RUN_AGAIN",
    "SOURCE_MEMBERS",
    "START_OVER",
    "UNAVAILABLE_MEMBER",
    "Attributes",
    "BadRowError",
    "ByteSize",
    "CdcError",
    "ChangeReader",
    "Changefeed",
    "CloudEvents",
    "Column",
    "ColumnType",
    "Comparison",
    "ConfigError",
    "ContractError",
    "Covered",
    "DecodedRow",
    "Decoder",
    "DeleteForm",
    "Destination",
    "DestinationLostError",
    "Duration",
    "EncodeError",
    "Encoder",
    "EncoderContext",
    "EncoderRegistration",
    "Endpoint",
    "Envelope",
    "FileBody",
    "FileShape",
    "Flushed",
    "Frontier",
    "FunctionRegistration",
    "HistoryLostError",
    "Kind",
    "Locality",
    "MessageBatch",
    "Move",
    "NewlineBody",
    "Op",
    "OptionError",
    "Place",
    "PlacementRules",
    "PluginLoadError",
    "Rangefeed",
    "RangefeedContext",
    "RangefeedRegistration",
    "RefusedRow",
    "RefusedRowsError",
    "Replica",
    "ReplicatedSpan",
    "Rescan",
    "ResolvedSink",
    "RestartError",
    "Restriction",
    "RetryableError",
    "RetryableRangefeedError",
    "RetryableSinkError",
    "RowBatch",
    "RowColumns",
    "RowError",
    "RowPlace",
    "ScanProgress",
    "SchemaChange",
    "SchemaChangeRules",
    "ShapeChange",
    "Sink",
    "SinkContext",
    "SinkReader",
    "SinkRegistration",
    "Slice",
    "SliceInfo",
    "SliceReader",
    "SourceFacts",
    "SourceHistory",
    "SourceObjects",
    "SourceTransaction",
    "SourceWriter",
    "SourceWriterContext",
    "Span",
    "SpanMark",
    "StepLimit",
    "StepPlanner",
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
    "TracedRow",
    "assign_spans",
    "closest_replica",
    "counted",
    "did_you_mean",
    "each_event",
    "executor_locality",
    "format_duration",
    "hookimpl",
    "joined_lines",
    "joined_values",
    "mask",
    "masked_uri",
    "op_of",
    "op_texts",
    "option",
    "parse_options",
    "plain_value",
    "refuse_unavailable",
    "secret_forms",
    "secret_values",
    "shown_key",
    "timestamps_of_source",
    "unavailable_by_column",
    "unavailable_column",
    "unavailable_sets",
    "uri_secrets",
    "watch",
]

_NAMES = {
    "cdc_core.cloudevents": "EVENT_TYPE EVENTS_TYPE Attributes CloudEvents each_event",
    "cdc_core.config.changefeed": "Changefeed",
    "cdc_core.decoder": "DecodedRow Decoder plain_value",
    "cdc_core.destination": "Destination",
    "cdc_core.encoder": "Encoder",
    "cdc_core.encoder_context": "EncoderContext",
    "cdc_core.enriched": "SOURCE_MEMBERS SourceFacts op_of op_texts timestamps_of_source",
    "cdc_core.envelope": "METADATA_MEMBER DeleteForm Envelope RowPlace",
    "cdc_core.errors": (
        "START_OVER BadRowError CdcError ConfigError ContractError DestinationLostError EncodeError HistoryLostError "
        "OptionError PluginLoadError RefusedRowsError RestartError RetryableError RetryableRangefeedError "
        "RetryableSinkError RowError TerminalError TerminalRangefeedError TerminalSinkError"
    ),
    "cdc_core.file_body": "FileBody NewlineBody joined_lines joined_values",
    "cdc_core.frontier": "Frontier",
    "cdc_core.function_registration": "FunctionRegistration",
    "cdc_core.hookspecs": "hookimpl",
    "cdc_core.locality": "Locality",
    "cdc_core.masking": "mask masked_uri secret_forms uri_secrets",
    "cdc_core.messages": "MessageBatch TopicNames",
    "cdc_core.options": "MB ByteSize Duration counted did_you_mean format_duration option parse_options secret_values",
    "cdc_core.placement": "Place PlacementRules Replica ReplicatedSpan assign_spans closest_replica executor_locality",
    "cdc_core.rangefeed": "Rangefeed",
    "cdc_core.rangefeed_context": "RangefeedContext",
    "cdc_core.rangefeed_values": "Move Rescan ScanProgress SourceObjects Token",
    "cdc_core.readback.reader": "ChangeReader",
    "cdc_core.registrations": "EncoderRegistration RangefeedRegistration",
    "cdc_core.remedies": "ALL_AGAIN LIST_AGAIN RUN_AGAIN",
    "cdc_core.resolved_sink": "Covered ResolvedSink",
    "cdc_core.restriction": "Comparison Restriction",
    "cdc_core.rows": "Op RowBatch RowColumns shown_key",
    "cdc_core.schema": "Column ColumnType Kind TableName TableSchema",
    "cdc_core.schema_change": "SchemaChange SchemaChangeRules ShapeChange",
    "cdc_core.sink": "Flushed RefusedRow Sink SliceInfo",
    "cdc_core.sink_calls": "TracedRow",
    "cdc_core.sink_context": "SinkContext",
    "cdc_core.sink_reader": "Endpoint SinkReader StoredMessage",
    "cdc_core.sink_registration": "SinkRegistration",
    "cdc_core.slice_reader": "SliceReader SpanMark",
    "cdc_core.source_history": "SourceHistory",
    "cdc_core.source_writer": "SourceTransaction SourceWriter SourceWriterContext",
    "cdc_core.span": "Span",
    "cdc_core.step_planner": "Slice StepLimit StepPlanner",
    "cdc_core.stored_history": "FileShape StoredFile StoredHistory",
    "cdc_core.timestamp": "Timestamp",
    "cdc_core.unavailable": (
        "UNAVAILABLE_MEMBER refuse_unavailable unavailable_by_column unavailable_column unavailable_sets"
    ),
    "cdc_core.watching.watch": "watch",
}
"""Which names are from which module."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # with a `__getattr__`, type checkers would find every name here

    def __getattr__(name: str) -> object:
        """Import the module that *name* is from."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
