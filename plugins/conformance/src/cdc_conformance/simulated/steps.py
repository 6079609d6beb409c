"""The statements of scripts: each calls a method of `SimulatedDatabase`, or of a transaction that the script has begun.

    Put("t", 1, n=2), Begin("a"), Write("a", "t", 1, n=3), Remove("a", "t", 2), Commit("a"), Split("t", 5), Tick(3)

`Write` and `Remove` are `put` and `delete` of the transaction that their first argument names. `Crash` is the end of a
node of the database; the marker `CRASH` is something else: the test decides what it does.
"""

from __future__ import annotations

from typing import Any

from cdc_conformance.simulated.script import Stage, Step


class _OfTransaction(Step):
    """Calls a method of the transaction that the first argument names."""

    def play(self, stage: Stage) -> Any:
        return self.call(stage.transaction(self.args[0]), *self.args[1:])


class Begin(Step):
    method, names = "begin", ("name", "node")

    def play(self, stage: Stage) -> None:
        stage.transactions[self.args[0]] = super().play(stage)


class ChangeKey(Step):
    def play(self, stage: Stage) -> Any:
        return stage.db.change_key(self.args[0], *self.args[1])


def _statement(name: str, method: str, *names: str, base: type[Step] = Step) -> type[Step]:
    return type(name, (base,), {"method": method, "names": names, "__module__": __name__})


Put = _statement("Put", "put", "table", "id")
Delete = _statement("Delete", "delete", "table", "id_", "node")
Write = _statement("Write", "put", "table", "id", base=_OfTransaction)
Remove = _statement("Remove", "delete", "table", "id_", base=_OfTransaction)
Commit = _statement("Commit", "commit", "later", base=_OfTransaction)
Rollback = _statement("Rollback", "rollback", base=_OfTransaction)
Push = _statement("Push", "push", base=_OfTransaction)
Abort = _statement("Abort", "abort", base=_OfTransaction)
Read = _statement("Read", "as_of")
Tick = _statement("Tick", "tick", "times", "ms")
Split = _statement("Split", "split", "table", "at")
Merge = _statement("Merge", "merge", "table", "at")
TransferLease = _statement("TransferLease", "transfer_lease", "table", "at", "to")
MoveReplicas = _statement("MoveReplicas", "move_replicas", "table", "at", "to")
SetLag = _statement("SetLag", "set_lag", "table", "at", "ms", "node")
SetSkew = _statement("SetSkew", "set_skew", "node", "ms")
Crash = _statement("Crash", "crash", "node")
Restart = _statement("Restart", "restart", "node")
AddColumn = _statement("AddColumn", "add_column", "table", "column", "type_", "default")
DropColumn = _statement("DropColumn", "drop_column", "table", "column")
RenameColumn = _statement("RenameColumn", "rename_column", "table", "column", "to")
ChangeType = _statement("ChangeType", "change_type", "table", "column", "type_")
CollectGarbage = _statement("CollectGarbage", "collect_garbage", "force")
