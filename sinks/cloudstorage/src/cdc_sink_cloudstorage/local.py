"""Files on a local or mounted file system."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path

from cdc_core.errors import ConfigError
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged, Store, failure
from cdc_sink_cloudstorage.temporaries import Temporaries

__all__ = ["LocalStore"]

_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


class LocalStore(Store):
    """Writes each file under `.inprogress` in the root, syncs it, renames it into place and syncs its directory.

    Directories are created on demand. A process that dies leaves at most a temporary file behind.
    """

    name_limit = 255
    visible_is_durable = False  # the directory of a file that a process renamed and then died may still be in memory

    def __init__(self, root: str, *, temporaries: Temporaries) -> None:
        self.root = Path(root)
        self._temporaries = temporaries
        self._in_progress = self.root / IN_PROGRESS
        self._durable: set[Path] = set()

    def check(self) -> None:
        nearest = self.root
        while True:
            try:
                mode = nearest.stat().st_mode
                break
            except (FileNotFoundError, NotADirectoryError):
                if nearest.is_symlink():
                    raise ConfigError(self._refusal(nearest, "is a symbolic link to nothing", "point it at")) from None
                nearest = nearest.parent
            except OSError as error:
                raise ConfigError(self._refusal(nearest, f"cannot be reached ({error.strerror})", "choose")) from error
        if not stat.S_ISDIR(mode):
            raise ConfigError(self._refusal(nearest, "is not a directory", "choose"))
        if os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
            return
        if os.statvfs(nearest).f_flag & os.ST_RDONLY:
            raise ConfigError(self._refusal(nearest, "is on a read-only file system", "mount it writable or choose"))
        who = f"is not writable for user id {os.geteuid()}"
        raise ConfigError(self._refusal(nearest, who, "grant that user write permission or choose"))

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        final = self.root / path
        temporary = self._in_progress / self._temporaries.new(uuid.uuid4().hex)
        try:
            self._make_durable(self._in_progress)
            self._make_durable(final.parent)
            with open(temporary, "xb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            _remove(temporary)
            if isinstance(error, OSError):
                raise failure(str(final), error) from error
            raise
        return _Written(temporary, final)

    def sweep(self) -> None:
        try:
            names = os.listdir(self._in_progress)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failure(str(self._in_progress), error) from error
        for name in self._temporaries.of_dead_runs(names):
            with contextlib.suppress(FileNotFoundError):  # a sibling sweeps too
                try:
                    (self._in_progress / name).unlink()
                except OSError as error:
                    raise failure(str(self._in_progress / name), error) from error

    def _make_durable(self, directory: Path) -> None:
        """Create *directory* and have the entries that lead to it on disk, as far up as this store made them."""
        if directory in self._durable and directory.is_dir():
            return
        missing = directory
        while not missing.exists():
            missing = missing.parent
        directory.mkdir(parents=True, exist_ok=True)
        # What lies between the root and the directory may be a sibling's work that is not synced yet.
        top = min(missing, self.root, key=lambda path: len(path.parts))
        for parent in directory.parents:
            if len(parent.parts) < len(top.parts):
                break
            _sync_directory(parent)
        self._durable.add(directory)

    def _refusal(self, place: Path, fault: str, remedy: str) -> str:
        what = "it" if place == self.root else str(place)
        return (
            f"sink directory {self.root} cannot be used because {what} {fault}: {remedy} a directory that is writable"
        )


class _Written(Staged):
    """A synced temporary file that a rename makes visible."""

    def __init__(self, temporary: Path, final: Path) -> None:
        self._temporary = temporary
        self._final = final

    def publish(self) -> None:
        try:
            os.replace(self._temporary, self._final)
            _sync_directory(self._final.parent)
        except OSError as error:
            raise failure(str(self._final), error) from error
        finally:
            _remove(self._temporary)

    def discard(self) -> None:
        _remove(self._temporary)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:  # some mounted file systems sync names by themselves
            raise
    finally:
        os.close(descriptor)
