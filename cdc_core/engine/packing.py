"""The packed layout: how slices travel through Spark as rows that the JVM never opens.

A slice is a sequence of Spark rows: one `begin`, any number of `rows`, one `end` (or `failed`, when reading failed).
A `refused` row is a row of the source that is too large. A `traced` row says which of the next ones are traced.
`beside` are rows that others refer to, in the columns layout.
Where there is no slice at all, one row says `idle`: without it, a reader that died would look the same. Each is an
Arrow record batch of a single row, because the JVM merges and splits record batches by their number of rows; with
`maxRecordsPerBatch=1` it passes each on unchanged.

A payload of more than `PIECE_BYTES` travels as a `pieces` row, which says how long it is and of what kind, and the
`piece` rows that follow it. So the memory of the JVM does not depend on the size of a row.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cdc_core.errors import ContractError
from cdc_core.rows import RowBatch

BEGIN, ROWS, END, FAILED, IDLE, REFUSED, TRACED = "begin", "rows", "end", "failed", "idle", "refused", "traced"
BESIDE = "beside"
PIECES, _PIECE = "pieces", "piece"
TARGET_BYTES = 2 * 1024 * 1024
"""Row batches of more than twice this are divided, so that few have to be cut into pieces."""
PIECE_BYTES = 4 * 1024 * 1024
"""No Spark row has a larger payload."""

Arriving: TypeAlias = pa.RecordBatch | tuple[str, Any]
"""What reaches the writer of a slice."""

SCHEMA = pa.schema([("kind", pa.string()), ("table", pa.string()), ("version", pa.int32()), ("payload", pa.binary())])


def note(kind: str, value: object) -> pa.RecordBatch:
    """Return a row that carries the picklable *value*, for a value that is small."""
    return _row(kind, None, None, pickle.dumps(value))


def notes(kind: str, value: object) -> Iterator[pa.RecordBatch]:
    """Return the picklable *value*, of any size, as one row or in pieces."""
    return _in_pieces(kind, None, None, [pa.py_buffer(pickle.dumps(value))])


def divided(rows: RowBatch, *, most_bytes: int | None = None) -> Iterator[RowBatch]:
    """Yield *rows* in batches of at most *most_bytes*, by default twice the target, or of one row that is larger."""
    most = 2 * TARGET_BYTES if most_bytes is None else most_bytes
    if len(rows) > 1 and rows.nbytes > most:
        middle = len(rows) // 2  # by halves, as values may be of very different sizes
        yield from divided(rows.slice(0, middle), most_bytes=most)
        yield from divided(rows.slice(middle), most_bytes=most)
    elif len(rows):
        yield rows


def pack(rows: RowBatch, kind: str = ROWS) -> Iterator[pa.RecordBatch]:
    """Yield *rows* as one or more `rows` rows, or all of them as one of kind `beside`; large ones in pieces.

    Nothing for no `rows`.
    """
    name, version = str(rows.schema.name), rows.schema.version
    for part in (rows,) if kind == BESIDE else divided(rows):
        if part.nbytes < PIECE_BYTES // 2 and len(data := part.to_ipc()) <= PIECE_BYTES:
            yield _row(kind, name, version, data)
        else:
            yield from _in_pieces(kind, name, version, part.to_ipc_parts())


def unpack(batches: Iterable[Arriving]) -> Iterator[tuple[str, Any]]:
    """Yield (kind, value) of every value: a RowBatch for `rows` and `beside`, what `note` was given for all others.

    What another layout has opened already, as (kind, value), is yielded as it is.

    A value whose pieces end too early is not yielded: its reader died. Raises: ContractError when pieces are missing or
    out of order.
    """
    joined: _Joined | None = None
    for batch in batches:
        if isinstance(batch, tuple):
            yield batch
            del batch  # as below
            continue
        payloads, numbers = batch.column("payload"), batch.column("version")
        for index, kind in enumerate(batch.column("kind").to_pylist()):
            payload = payloads[index].as_buffer()
            if kind != FAILED and (kind == _PIECE) != (joined is not None):
                raise ContractError(f"engine: a row of kind '{kind}' arrived where {_due(joined)} was due")
            if kind == PIECES:
                joined = _Joined(**pickle.loads(payload))
                continue
            if joined is not None and kind == _PIECE:
                joined.add(numbers[index].as_py(), payload)
                if not joined.complete:
                    continue
                kind, payload, joined = joined.kind, joined.buffer, None
            value = RowBatch.from_ipc(payload) if kind in (ROWS, BESIDE) else pickle.loads(payload)
            del payload
            yield kind, value
            del value  # a large one would stay while the pieces of the next are joined


class _Joined:
    """A payload whose pieces are being put together. Each is copied once, and need not be kept."""

    def __init__(self, *, kind: str, size_bytes: int) -> None:
        self.kind = kind
        self.buffer = pa.allocate_buffer(size_bytes)
        self._view = np.frombuffer(self.buffer, np.uint8)
        self._filled = 0
        self._pieces = 0

    @property
    def complete(self) -> bool:
        return self._filled == len(self._view)

    def add(self, number: int, piece: pa.Buffer) -> None:
        end = self._filled + piece.size
        if number != self._pieces or end > len(self._view):
            raise ContractError(f"engine: piece {number} arrived where piece {self._pieces} was due")
        self._view[self._filled : end] = np.frombuffer(piece, np.uint8)
        self._filled, self._pieces = end, number + 1


def _due(joined: _Joined | None) -> str:
    return "no piece" if joined is None else "the next piece"


def _in_pieces(
    kind: str, table: str | None, version: int | None, parts: Sequence[pa.Buffer]
) -> Iterator[pa.RecordBatch]:
    """Yield the payload that has consecutive *parts* as one row, or as pieces if it is large."""
    size = sum(part.size for part in parts)
    if size <= PIECE_BYTES:
        yield _row(kind, table, version, b"".join(parts))
        return
    yield note(PIECES, {"kind": kind, "size_bytes": size})
    for number, piece in enumerate(_cut(parts)):
        yield _row(_PIECE, table, number, piece)


def _cut(parts: Sequence[pa.Buffer]) -> Iterator[pa.Buffer]:
    """Yield the bytes of *parts* in buffers of `PIECE_BYTES`. No more than that is copied at a time."""
    waiting: list[pa.Buffer] = []
    room = PIECE_BYTES
    for part in parts:
        offset = 0
        while part.size - offset >= room:
            waiting.append(part.slice(offset, room))
            yield _joined_parts(waiting)
            offset += room
            waiting, room = [], PIECE_BYTES
        if offset < part.size:
            waiting.append(part.slice(offset))
            room -= part.size - offset
    if waiting:
        yield _joined_parts(waiting)


def _joined_parts(parts: Sequence[pa.Buffer]) -> pa.Buffer:
    return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))


def _row(kind: str, table: str | None, version: int | None, payload: bytes | pa.Buffer) -> pa.RecordBatch:
    offsets = pa.array([0, len(payload)], pa.int32()).buffers()[1]
    return pa.record_batch(
        [
            pa.array([kind], pa.string()),
            pa.array([table], pa.string()),
            pa.array([version], pa.int32()),
            pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(payload)]),
        ],
        schema=SCHEMA,
    )
