"""Cuts many JSON objects with the same members into columns of texts, by their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_column_texts.json_splitting import structure
from cdc_column_texts.numpy_columns import Bools, Ints

_BRACES, _BRACKETS, _COMMA, _NEWLINE = b"{}", b"[]", ord(","), ord("\n")


@dataclass(frozen=True, slots=True)
class Spans:
    """Parts of the data, one for each row: the places where they start, and the places after them."""

    starts: Ints
    ends: Ints

    def filter(self, where: Bools) -> Spans:
        return Spans(self.starts[where], self.ends[where])


class Members:
    """Lines of valid JSON, each an object. Callers name the members in the order in which the encoder writes them.

    A method returns None when a row differs from that: the encoder did not write the text.
    """

    def __init__(self, data: bytes) -> None:
        self._bytes = pa.py_buffer(data)
        self._data: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self._places, self._depths = structure(self._data)

    def lines(self, names: Sequence[str]) -> list[Spans] | None:
        """Return the members of all lines, which have no others. *names* are JSON strings."""
        places = self._places[self._depths == 1]
        spans = self._cut(places, [f"{name}: ".encode() for name in names], _BRACES)
        if spans is None:
            return None
        starts, ends = places[:: len(names) + 1], places[len(names) :: len(names) + 1]
        whole = bool((self._data[ends + 1] == _NEWLINE).all()) if ends[-1] + 1 < len(self._data) else False
        return spans if whole and starts[0] == 0 and np.array_equal(starts[1:], ends[:-1] + 2) else None

    def objects(self, within: Spans, names: Sequence[str]) -> list[Spans] | None:
        """Return the members of the objects at *within*, which are members of lines."""
        return self._cut(self._inside(within, 2), [f"{name}: ".encode() for name in names], _BRACES)

    def arrays(self, within: Spans, count: int, *, depth: int = 2) -> list[Spans] | None:
        """Return the *count* items of each array at *within*. The members of a line have *depth* 2."""
        return self._cut(self._inside(within, depth), [b""] * count, _BRACKETS)

    def texts(self, spans: Spans) -> pa.Array:
        """Return the texts at *spans*, large_string."""
        if len(spans.starts) == 0:
            return pa.array([], pa.large_string())
        cuts = np.stack([spans.starts, spans.ends], axis=1).ravel()
        buffers = [None, pa.py_buffer(cuts), self._bytes]
        every_second = np.arange(0, len(cuts), 2)
        return pa.Array.from_buffers(pa.large_string(), len(cuts) - 1, buffers).take(pa.array(every_second))

    def say(self, spans: Spans, text: bytes) -> Bools:
        """Return the rows whose text is exactly *text*."""
        found: Bools = spans.ends - spans.starts == len(text)
        found[found] = self._have(spans.starts[found], text)
        return found

    def _inside(self, within: Spans, depth: int) -> Ints:
        places = self._places[self._depths == depth]
        rows = np.searchsorted(within.starts, places, side="right") - 1
        inside: Ints = places[(rows >= 0) & (places < within.ends[rows])]
        return inside

    def _cut(self, places: Ints, prefixes: Sequence[bytes], brackets: bytes) -> list[Spans] | None:
        """Return the parts between *places*, without their prefixes; None when one has another prefix."""
        width = len(prefixes) + 1
        if len(places) == 0 or len(places) % width:
            return None
        table = places.reshape(-1, width)
        codes = self._data[table]
        if (
            (codes[:, 0] != brackets[0]).any()
            or (codes[:, -1] != brackets[1]).any()
            or (codes[:, 1:-1] != _COMMA).any()
        ):
            return None
        spans = []
        for index, prefix in enumerate(prefixes):
            begin = b" " + prefix if index else prefix
            starts, ends = table[:, index] + 1, table[:, index + 1]
            if (starts + len(begin) > ends).any() or not self._have(starts, begin).all():
                return None
            spans.append(Spans(starts + len(begin), ends))
        return spans

    def _have(self, starts: Ints, text: bytes) -> Bools:
        """Return the rows where *text* begins at *starts*. That many bytes must follow each start."""
        if not text:
            return np.ones(len(starts), np.bool_)
        parts = np.lib.stride_tricks.sliding_window_view(self._data, len(text))[starts]
        found: Bools = (parts == np.frombuffer(text, np.uint8)).all(axis=1)
        return found
