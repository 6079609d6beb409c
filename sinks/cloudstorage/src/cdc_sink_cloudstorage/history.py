"""The exactly-once view of the files: what manifests list, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from cdc_core.errors import ConfigError, HistoryLostError
from cdc_core.stored_history import FileShape, StoredFile, StoredHistory
from cdc_core.timestamp import Timestamp
from cdc_sink_cloudstorage.manifest import Manifest
from cdc_sink_cloudstorage.names import ManifestFile, parse_manifest_name
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.reader import unpacked
from cdc_sink_cloudstorage.schemas import SchemaFile
from cdc_sink_cloudstorage.stored import StoredBodies

__all__ = ["CloudStorageHistory"]

_AT_ONCE = 64
"""Manifests that are read at the same time, where the store can."""

T = TypeVar("T")


class CloudStorageHistory(StoredHistory):
    """Follows the manifests of one changefeed back from a mark.

    A manifest says which mark it follows. As long as that one is there too, no file is missing; where it is not, or
    where a manifest says itself that something before it went unrecorded, there is a gap, and reading across it is
    refused. Several changefeeds may write below one root: each has manifests of its own.
    """

    def __init__(self, uri: str, options: CloudStorageOptions, *, changefeed: str = "") -> None:
        super().__init__(uri, options, changefeed=changefeed)
        self._stored = StoredBodies(uri, options)
        self._shapes: dict[str, FileShape] = {}
        self._listed: dict[Timestamp, str] = {}

    def changefeeds(self) -> Sequence[str]:
        return sorted({_identity(name) for _, name in self._manifests()})

    def marks(self) -> Sequence[Timestamp]:
        self._listed = self._chosen()
        return list(self._listed)

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        if upto <= after:
            return
        for manifest in self._read(self._chain(upto, after)):
            for file in _of_manifest(manifest.stored_files, manifest.mark):
                if max(file.upper, file.mark) > after and file.lower <= upto:
                    yield file

    def shape(self, file: StoredFile) -> FileShape:
        known = self._shapes.get(file.schema_path)
        if known is None:
            body = self._stored.body(file.schema_path)
            if body is None:
                raise HistoryLostError(f"{self._shown(file.schema_path)}, the schema of {file.path}, is gone")
            try:
                known = self._shapes[file.schema_path] = SchemaFile.read(body)
            except (ValueError, KeyError, TypeError) as error:
                raise HistoryLostError(
                    f"{self._shown(file.schema_path)}, the schema of {file.path}, is damaged: {error}"
                ) from None
        return known

    def body(self, file: StoredFile) -> bytes:
        stored = self._stored.body(file.path)
        if stored is None:
            raise HistoryLostError(f"{self._shown(file.path)}, which the mark {file.mark} covers, is gone")
        algorithm, _, digest = file.checksum.partition(":")
        if len(stored) != file.bytes or hashlib.new(algorithm, stored).hexdigest() != digest:
            raise HistoryLostError(
                f"{self._shown(file.path)} is not what the mark {file.mark} covers: it has {len(stored)} bytes of"
                f" {file.bytes}, or another content"
            )
        return unpacked(stored, file.path)

    def close(self) -> None:
        """There is nothing to let go of: fsspec keeps its clients."""

    def _manifests(self) -> list[tuple[str, ManifestFile]]:
        named = ((path, parse_manifest_name(path)) for path in self._stored.paths())
        return [(path, name) for path, name in named if name is not None]

    def _chosen(self) -> dict[Timestamp, str]:
        """Return the path of the chosen changefeed's manifest of each mark, ascending."""
        found = self._manifests()
        identities = sorted({_identity(name) for _, name in found})
        wanted = [each for each in identities if self.changefeed in ("", each, each.rpartition(".")[0])]
        if len(wanted) != 1:
            raise ConfigError(self._refusal(identities, wanted))
        mine = [(name.timestamp, path) for path, name in found if _identity(name) == wanted[0]]
        return dict(sorted(mine))

    def _refusal(self, identities: Sequence[str], wanted: Sequence[str]) -> str:
        place = self._stored.shown
        if not identities:
            return (
                f"there is no manifest below {place}: a changefeed writes them there when its option 'resolved' is set"
            )
        if not wanted:
            return f"changefeed '{self.changefeed}' has no manifest below {place}; there are {', '.join(identities)}"
        return f"several changefeeds have written below {place}, choose one of them: {', '.join(wanted)}"

    def _chain(self, upto: Timestamp, after: Timestamp) -> list[str]:
        """Return the paths of the manifests that may list rows in (*after*, *upto*], ascending."""
        paths = self._listed if upto in self._listed else self._chosen()
        if upto not in paths:
            raise ConfigError(
                f"{upto} is no resolved mark of the files below {self._stored.shown}; the newest is {max(paths)}"
            )
        marks = [mark for mark in paths if mark <= upto]
        chain: list[str] = []
        wanted: Timestamp | None = upto
        while marks:
            last, marks = marks[-_AT_ONCE:], marks[:-_AT_ONCE]
            read = self._read([paths[mark] for mark in last])
            for manifest in reversed(list(read)):
                if manifest.mark != wanted:
                    continue  # a run wrote it and died before that counted; what follows it lists its files too
                if manifest.mark <= after and manifest.latest <= after:
                    return chain[::-1]
                chain.append(paths[manifest.mark])
                wanted = manifest.previous
                if wanted == Timestamp():
                    return chain[::-1]
                if wanted is None:
                    raise HistoryLostError(
                        f"the files below {self._stored.shown} cannot be read from {after} on: before the mark"
                        f" {manifest.mark} the changefeed delivered rows that no manifest here lists, because its"
                        f" option 'resolved' was not set or it had another sink; {_way_out(manifest, paths)}"
                    )
                if wanted not in paths:
                    raise HistoryLostError(
                        f"the files below {self._stored.shown} cannot be read from {after} on: the manifest of the mark"
                        f" {wanted} is gone; {_way_out(manifest, paths)}"
                    )
        return chain[::-1]

    def _read(self, paths: Sequence[str]) -> Iterator[Manifest]:
        for first in range(0, len(paths), _AT_ONCE):
            some = paths[first : first + _AT_ONCE]
            for path, body in zip(some, self._stored.bodies(some), strict=True):
                if body is None:
                    raise HistoryLostError(f"{self._shown(path)} is gone")
                yield _of_manifest(lambda body=body: Manifest.from_bytes(body), path)  # type: ignore[misc]

    def _shown(self, path: str) -> str:
        return f"{self._stored.shown}/{path}"


def _identity(name: ManifestFile) -> str:
    return f"{name.changefeed}.{name.feed_id}"


def _way_out(oldest: Manifest, marks: Collection[Timestamp]) -> str:
    """Return what to do when nothing before *oldest* is known: rows above its mark may be there, up to `latest`."""
    reached = max(oldest.mark, oldest.latest)
    fit = min((mark for mark in marks if mark >= reached), default=None)
    return (
        f"read after {fit}" if fit is not None else f"wait for a mark that is not below {reached} and read after that"
    )


def _of_manifest(read: Callable[[], T], which: object) -> T:
    try:
        return read()
    except ValueError as error:
        raise HistoryLostError(f"manifest {which} is damaged: {error}") from None
