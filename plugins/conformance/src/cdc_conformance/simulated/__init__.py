"""A simulated database: a cluster like CockroachDB's in a file of events, for tests of software that reads a database.

db = SimulatedDatabase.create(tmp_path, seed=1)
db.create_table("t")
with db.transaction() as txn:
    txn.put("t", id=1, n=2)
db.split("t", at=5)
db.settle()
db.as_of(db.now).rows("t")
"""

from cdc_conformance.simulated.database import SimulatedDatabase, Snapshot, Txn
from cdc_conformance.simulated.errors import (
    StatementError,
    TransactionAbortedError,
    UnavailableError,
    WriteConflictError,
)
from cdc_conformance.simulated.placing import Served

__all__ = [
    "Served",
    "SimulatedDatabase",
    "Snapshot",
    "StatementError",
    "TransactionAbortedError",
    "Txn",
    "UnavailableError",
    "WriteConflictError",
]
