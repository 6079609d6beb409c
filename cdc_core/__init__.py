"""Change data capture on Spark: the contracts that plugins implement and the values that pass between them.

Everything that the author of a plugin or of an embedding program needs is exported here, and nothing else is public.
Each name is imported from its module when it is first used: a process that writes files, for example, needs neither the
parser of queries nor the store. So importing this module imports nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each name as itself, which exports it for type checkers
    from cdc_core.cloudevents import EVENT_TYPE as EVENT_TYPE
    from cdc_core.cloudevents import EVENTS_TYPE as EVENTS_TYPE
    from cdc_core.cloudevents import Attributes as Attributes
    from cdc_core.cloudevents import CloudEvents as CloudEvents
    from cdc_core.cloudevents import each_event as each_event
    from cdc_core.config.changefeed import Changefeed as Changefeed
    from cdc_core.decoder import DecodedRow as DecodedRow
    from cdc_core.decoder import Decoder as Decoder
    from cdc_core.decoder import plain_value as plain_value
    from cdc_core.destination import Destination as Destination
    from cdc_core.encoder import Encoder as Encoder
    from cdc_core.encoder_context import EncoderContext as EncoderContext
    from cdc_core.enriched import SOURCE_MEMBERS as SOURCE_MEMBERS
    from cdc_core.enriched import SourceFacts as SourceFacts
    from cdc_core.enriched import op_of as op_of
    from cdc_core.enriched import op_texts as op_texts
    from cdc_core.enriched import timestamps_of_source as timestamps_of_source
    from cdc_core.envelope import METADATA_MEMBER as METADATA_MEMBER
    from cdc_core.envelope import DeleteForm as DeleteForm
    from cdc_core.envelope import Envelope as Envelope
    from cdc_core.envelope import RowPlace as RowPlace
    from cdc_core.errors import START_OVER as START_OVER
    from cdc_core.errors import BadRowError as BadRowError
    from cdc_core.errors import CdcError as CdcError
    from cdc_core.errors import ConfigError as ConfigError
    from cdc_core.errors import ContractError as ContractError
    from cdc_core.errors import DestinationLostError as DestinationLostError
    from cdc_core.errors import EncodeError as EncodeError
    from cdc_core.errors import HistoryLostError as HistoryLostError
    from cdc_core.errors import OptionError as OptionError
    from cdc_core.errors import PluginLoadError as PluginLoadError
    from cdc_core.errors import RefusedRowsError as RefusedRowsError
    from cdc_core.errors import RestartError as RestartError
    from cdc_core.errors import RetryableError as RetryableError
    from cdc_core.errors import RetryableRangefeedError as RetryableRangefeedError
    from cdc_core.errors import RetryableSinkError as RetryableSinkError
    from cdc_core.errors import RowError as RowError
    from cdc_core.errors import TerminalError as TerminalError
    from cdc_core.errors import TerminalRangefeedError as TerminalRangefeedError
    from cdc_core.errors import TerminalSinkError as TerminalSinkError
    from cdc_core.file_body import FileBody as FileBody
    from cdc_core.file_body import NewlineBody as NewlineBody
    from cdc_core.file_body import joined_lines as joined_lines
    from cdc_core.file_body import joined_values as joined_values
    from cdc_core.frontier import Frontier as Frontier
    from cdc_core.function_registration import FunctionRegistration as FunctionRegistration
    from cdc_core.hookspecs import hookimpl as hookimpl
    from cdc_core.locality import Locality as Locality
    from cdc_core.masking import mask as mask
    from cdc_core.masking import masked_uri as masked_uri
    from cdc_core.masking import secret_forms as secret_forms
    from cdc_core.masking import uri_secrets as uri_secrets
    from cdc_core.messages import MessageBatch as MessageBatch
    from cdc_core.messages import TopicNames as TopicNames
    from cdc_core.options import MB as MB
    from cdc_core.options import ByteSize as ByteSize
    from cdc_core.options import Duration as Duration
    from cdc_core.options import counted as counted
    from cdc_core.options import did_you_mean as did_you_mean
    from cdc_core.options import format_duration as format_duration
    from cdc_core.options import option as option
    from cdc_core.options import parse_options as parse_options
    from cdc_core.options import secret_values as secret_values
    from cdc_core.placement import Place as Place
    from cdc_core.placement import PlacementRules as PlacementRules
    from cdc_core.placement import Replica as Replica
    from cdc_core.placement import ReplicatedSpan as ReplicatedSpan
    from cdc_core.placement import assign_spans as assign_spans
    from cdc_core.placement import closest_replica as closest_replica
    from cdc_core.placement import executor_locality as executor_locality
    from cdc_core.rangefeed import Rangefeed as Rangefeed
    from cdc_core.rangefeed_context import RangefeedContext as RangefeedContext
    from cdc_core.rangefeed_values import Move as Move
    from cdc_core.rangefeed_values import Rescan as Rescan
    from cdc_core.rangefeed_values import ScanProgress as ScanProgress
    from cdc_core.rangefeed_values import SourceObjects as SourceObjects
    from cdc_core.rangefeed_values import Token as Token
    from cdc_core.readback.reader import ChangeReader as ChangeReader
    from cdc_core.registrations import EncoderRegistration as EncoderRegistration
    from cdc_core.registrations import RangefeedRegistration as RangefeedRegistration
    from cdc_core.remedies import ALL_AGAIN as ALL_AGAIN
    from cdc_core.remedies import LIST_AGAIN as LIST_AGAIN
    from cdc_core.remedies import RUN_AGAIN as RUN_AGAIN
    from cdc_core.resolved_sink import Covered as Covered
    from cdc_core.resolved_sink import ResolvedSink as ResolvedSink
    from cdc_core.restriction import Comparison as Comparison
    from cdc_core.restriction import Restriction as Restriction
    from cdc_core.rows import Op as Op
    from cdc_core.rows import RowBatch as RowBatch
    from cdc_core.rows import RowColumns as RowColumns
    from cdc_core.rows import shown_key as shown_key
    from cdc_core.schema import Column as Column
    from cdc_core.schema import ColumnType as ColumnType
    from cdc_core.schema import Kind as Kind
    from cdc_core.schema import TableName as TableName
    from cdc_core.schema import TableSchema as TableSchema
    from cdc_core.schema_change import SchemaChange as SchemaChange
    from cdc_core.schema_change import SchemaChangeRules as SchemaChangeRules
    from cdc_core.schema_change import ShapeChange as ShapeChange
    from cdc_core.sink import Flushed as Flushed
    from cdc_core.sink import RefusedRow as RefusedRow
    from cdc_core.sink import Sink as Sink
    from cdc_core.sink import SliceInfo as SliceInfo
    from cdc_core.sink_calls import TracedRow as TracedRow
    from cdc_core.sink_context import SinkContext as SinkContext
    from cdc_core.sink_reader import Endpoint as Endpoint
    from cdc_core.sink_reader import SinkReader as SinkReader
    from cdc_core.sink_reader import StoredMessage as StoredMessage
    from cdc_core.sink_registration import SinkRegistration as SinkRegistration
    from cdc_core.slice_reader import SliceReader as SliceReader
    from cdc_core.slice_reader import SpanMark as SpanMark
    from cdc_core.source_history import SourceHistory as SourceHistory
    from cdc_core.source_writer import SourceTransaction as SourceTransaction
    from cdc_core.source_writer import SourceWriter as SourceWriter
    from cdc_core.source_writer import SourceWriterContext as SourceWriterContext
    from cdc_core.span import Span as Span
    from cdc_core.step_planner import Slice as Slice
    from cdc_core.step_planner import StepLimit as StepLimit
    from cdc_core.step_planner import StepPlanner as StepPlanner
    from cdc_core.stored_history import FileShape as FileShape
    from cdc_core.stored_history import StoredFile as StoredFile
    from cdc_core.stored_history import StoredHistory as StoredHistory
    from cdc_core.timestamp import Timestamp as Timestamp
    from cdc_core.unavailable import UNAVAILABLE_MEMBER as UNAVAILABLE_MEMBER
    from cdc_core.unavailable import refuse_unavailable as refuse_unavailable
    from cdc_core.unavailable import unavailable_by_column as unavailable_by_column
    from cdc_core.unavailable import unavailable_column as unavailable_column
    from cdc_core.unavailable import unavailable_sets as unavailable_sets
    from cdc_core.watching.watch import watch as watch

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
__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:  # with a `__getattr__`, type checkers would find every name here

    def __getattr__(name: str) -> object:
        """Import the module that *name* is from."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
