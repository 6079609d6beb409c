"""The exactly-once view of the files: those that manifests list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from cdc_core import ConfigError, FileShape, HistoryLostError, StoredFile, StoredHistory, Timestamp
from cdc_sink_cloudstorage.compression import decompressed
from cdc_sink_cloudstorage.manifest import Manifest
from cdc_sink_cloudstorage.names import ManifestFile, parse_manifest_name
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.schema_file import SchemaFile
from cdc_sink_cloudstorage.stored_bodies import StoredBodies

_READ_AT_ONCE = 64
"""Manifests that are read at the same time, where the client can do that."""

T = TypeVar("T")


class CloudStorageHistory(StoredHistory):
    """Follows the chain of manifests of one changefeed back from a mark.

    Each manifest names the previous mark. While the manifest of that mark exists too, no file is missing. Where it does
    not exist, or where a manifest states that rows before it were not recorded, there is a gap, and reading across it
    raises HistoryLostError. Several changefeeds may write below one root: each has its own manifests.
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
            for file in _parse(manifest.stored_files, manifest.mark):
                if max(file.upper, file.mark) > after and file.lower <= upto:
                    yield file

    def shape(self, file: StoredFile) -> FileShape:
        known = self._shapes.get(file.schema_path)
        if known is None:
            body = self._stored.body(file.schema_path)
            if body is None:
                raise HistoryLostError(f"{self._shown(file.schema_path)}, the schema of {file.path}, does not exist")
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
            raise HistoryLostError(f"{self._shown(file.path)}, which the mark {file.mark} covers, does not exist")
        algorithm, _, digest = file.checksum.partition(":")
        if len(stored) != file.bytes or hashlib.new(algorithm, stored).hexdigest() != digest:
            raise HistoryLostError(
                f"{self._shown(file.path)} is not the file that the mark {file.mark} covers: its {len(stored)} bytes"
                f" are not those that were written ({file.bytes} bytes)"
            )
        return decompressed(stored, file.path)

    def close(self) -> None:
        """Do nothing: the client stays open in this process."""

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
            return f"there is no manifest below {place}. Set the changefeed's option 'resolved' to write manifests"
        if not wanted:
            return (
                f"changefeed '{self.changefeed}' has no manifest below {place}. Choose one of {', '.join(identities)}"
            )
        return f"several changefeeds have written below {place}. Choose one of {', '.join(wanted)}"

    def _chain(self, upto: Timestamp, after: Timestamp) -> list[str]:
        """Return the paths of the manifests that may list rows in (*after*, *upto*], ascending."""
        paths = self._listed if upto in self._listed else self._chosen()
        if upto not in paths:
            raise ConfigError(
                f"{upto} is not a resolved mark of the files below {self._stored.shown}; the newest is {max(paths)}"
            )
        marks = [mark for mark in paths if mark <= upto]
        chain: list[str] = []
        wanted: Timestamp | None = upto
        while marks:
            last, marks = marks[-_READ_AT_ONCE:], marks[:-_READ_AT_ONCE]
            read = self._read([paths[mark] for mark in last])
            for manifest in reversed(list(read)):
                if manifest.mark != wanted:
                    continue  # its attempt died before it saved the mark; a later manifest lists the same files
                if manifest.mark <= after and manifest.latest <= after:
                    return chain[::-1]
                chain.append(paths[manifest.mark])
                wanted = manifest.previous
                if wanted == Timestamp():
                    return chain[::-1]
                if wanted is None:
                    raise HistoryLostError(
                        f"the files below {self._stored.shown} cannot be read after {after}: before the mark"
                        f" {manifest.mark} the changefeed delivered rows that no manifest here lists, because its"
                        f" option 'resolved' was not set or it had another sink. {_remedy(manifest, paths)}"
                    )
                if wanted not in paths:
                    raise HistoryLostError(
                        f"the files below {self._stored.shown} cannot be read after {after}: the manifest of the mark"
                        f" {wanted} does not exist. {_remedy(manifest, paths)}"
                    )
        return chain[::-1]

    def _read(self, paths: Sequence[str]) -> Iterator[Manifest]:
        for first in range(0, len(paths), _READ_AT_ONCE):
            some = paths[first : first + _READ_AT_ONCE]
            for path, body in zip(some, self._stored.bodies(some), strict=True):
                if body is None:
                    raise HistoryLostError(f"{self._shown(path)} does not exist")
                yield _parse(lambda body=body: Manifest.from_bytes(body), path)  # type: ignore[misc]

    def _shown(self, path: str) -> str:
        return f"{self._stored.shown}/{path}"


def _identity(name: ManifestFile) -> str:
    return f"{name.changefeed}.{name.feed_id}"


def _remedy(oldest: Manifest, marks: Collection[Timestamp]) -> str:
    """Return what a reader can do when no manifest before *oldest* is known.

    Rows of the missing manifests may be above the mark of *oldest*, up to its `latest`.
    """
    reached = max(oldest.mark, oldest.latest)
    fit = min((mark for mark in marks if mark >= reached), default=None)
    return (
        f"Read after {fit}" if fit is not None else f"Wait for a mark at or above {reached}, and read after that mark"
    )


def _parse(parse: Callable[[], T], which: object) -> T:
    try:
        return parse()
    except ValueError as error:
        raise HistoryLostError(f"manifest {which} cannot be read: {error}") from None
