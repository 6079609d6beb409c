"""Files on a local or mounted file system."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from cdc_core import ConfigError
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged, Store
from cdc_sink_cloudstorage.store_problem import StoreProblem, os_problem
from cdc_sink_cloudstorage.temporary_names import TemporaryNames

_ABSENT = StoreProblem(
    reason="the directory was removed, or its file system is not mounted",
    remedy="Mount it, or restart the changefeed to create the directory",
)
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


class LocalStore(Store):
    """Writes each file under `.inprogress` in the root, syncs it, renames it into place and syncs its directory.

    It creates directories below the root when they are needed. Only `prepare` creates `.inprogress`, and so the root:
    where its file system is not mounted, new files would be lost to everyone. A process that dies leaves at most
    temporary files.
    """

    max_name_bytes = 255
    visible_is_durable = False  # its writer may have died after the rename and before the sync of the directory

    def __init__(self, root: str, *, temporary_names: TemporaryNames) -> None:
        self.root = Path(root)
        self._temporary_names = temporary_names
        self.in_progress = self.root / IN_PROGRESS
        self._identity = self.in_progress / ".id"
        self._durable: set[Path] = set()

    def check(self) -> None:
        nearest = self.root
        while True:
            try:
                mode = nearest.stat().st_mode
                break
            except (FileNotFoundError, NotADirectoryError):
                if nearest.is_symlink():
                    fault = "is a dangling symbolic link"
                    raise self._refusal(nearest, fault, "Point the link at a directory") from None
                nearest = nearest.parent
            except OSError as error:
                fault = f"cannot be reached ({error.strerror})"
                raise self._refusal(nearest, fault, "Choose another directory") from error
        if not stat.S_ISDIR(mode):
            raise self._refusal(nearest, "is not a directory", "Choose another directory")
        if os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
            self._try_to_write(nearest)
            return
        if os.statvfs(nearest).f_flag & os.ST_RDONLY:
            fault, remedy = (
                "is on a read-only file system",
                "Mount the file system writable, or choose another directory",
            )
        else:
            fault = f"is not writable for user id {os.geteuid()}"
            remedy = "Grant that user write permission, or choose another directory"
        raise self._refusal(nearest, fault, remedy)

    def _try_to_write(self, place: Path) -> None:
        """Return when *place* takes a file, which no reader sees. What permissions say is not all: /proc takes none."""
        try:
            with tempfile.TemporaryFile(dir=place, prefix=".cdc-probe-", buffering=0) as probe:
                probe.write(b"\n")
        except OSError as error:
            remedy = os_problem(error).remedy or "Choose another directory"
            raise self._refusal(place, f"does not accept files ({error.strerror})", remedy) from error

    def prepare(self) -> None:
        """Create the root unless it exists, with an `identity` that it keeps. Raises: ConfigError."""
        try:
            self._make_durable(self.in_progress)
            with contextlib.suppress(FileExistsError), open(self._identity, "x") as file:
                file.write(uuid.uuid4().hex)
                file.flush()
                os.fsync(file.fileno())
            _sync_directory(self.in_progress)
        except OSError as error:
            problem = os_problem(error)
            fault, remedy = f"cannot be prepared ({problem.reason})", problem.remedy or "Choose another directory"
            raise self._refusal(self.root, fault, remedy) from error

    def identity(self) -> str | None:
        """Return what tells the root from another one at the same place; None if it has none. Raises: OSError."""
        try:
            return self._identity.read_text()
        except FileNotFoundError:
            return None

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        final = self.root / path
        temporary = self.in_progress / self._temporary_names.new(uuid.uuid4().hex)
        try:
            if not self.in_progress.is_dir():
                raise _ABSENT.failure(str(self.root))
            self._make_durable(final.parent)
            with open(temporary, "xb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            _remove(temporary)
            if isinstance(error, OSError):
                raise os_problem(error).failure(str(final)) from error
            raise
        return _Written(temporary, final)

    def sweep(self) -> None:
        try:
            names = os.listdir(self.in_progress)
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_problem(error).failure(str(self.in_progress)) from error
        for name in self._temporary_names.leftovers(names):
            with contextlib.suppress(FileNotFoundError):  # another task sweeps at the same time
                try:
                    (self.in_progress / name).unlink()
                except OSError as error:
                    raise os_problem(error).failure(str(self.in_progress / name)) from error

    def _make_durable(self, directory: Path) -> None:
        """Create *directory*, and sync the directories above it up to the root or the first one that existed."""
        if directory in self._durable and directory.is_dir():
            return
        missing = directory
        while not missing.exists():
            missing = missing.parent
        directory.mkdir(parents=True, exist_ok=True)
        # Another task may have created directories below the root and not synced them yet.
        top = min(missing, self.root, key=lambda path: len(path.parts))
        for parent in directory.parents:
            if len(parent.parts) < len(top.parts):
                break
            _sync_directory(parent)
        self._durable.add(directory)

    def _refusal(self, place: Path, fault: str, remedy: str) -> ConfigError:
        what = "it" if place == self.root else str(place)
        return ConfigError(f"sink directory {self.root} cannot be used: {what} {fault}. {remedy}", repairable=True)


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
            raise os_problem(error).failure(str(self._final)) from error
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
        if error.errno not in _CANNOT_SYNC:  # some mounted file systems have no sync for directories
            raise
    finally:
        os.close(descriptor)
