"""What a query can name of a change beside the columns of its table."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.rows import Op

__all__ = ["EVENT_FUNCTIONS", "MVCC_COLUMN", "PREVIOUS", "TOPIC_COLUMN"]

PREVIOUS = frozenset({"cdc_prev", "crdb_internal_cdc_prev"})
"""Names of the row before the change."""
TOPIC_COLUMN = "cdc_topic"
"""The name of an item that is the row's topic, and no column of the message."""
MVCC_COLUMN = "crdb_internal_mvcc_timestamp"
"""A column that every table has in a query: the commit timestamp of the row version, as a decimal."""

_COMMIT_TIME = "timestamp_micros(`wall` div 1000)"
EVENT_FUNCTIONS: Mapping[str, str] = {
    "event_op": f"(CASE `op` WHEN {Op.UPDATE:d} THEN 'update' WHEN {Op.DELETE:d} THEN 'delete' ELSE 'insert' END)",
    "statement_timestamp": _COMMIT_TIME,
    "transaction_timestamp": _COMMIT_TIME,
}
"""Functions without arguments that say something about the change, and the SQL over the columns layout for each."""
