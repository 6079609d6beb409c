"""The archive of `cdc debug`: texts, masked, each written or explained."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cdc_core.errors import ConfigError

Text = Callable[[], str]


class DebugArchive:
    """A new file at *path*, a tar.gz that only its owner may read, with one directory, *name*.

    *masked* is applied to every text, also to those of errors. A part that fails, or takes longer than *limit_s*, is in
    the archive as NAME.error with the reason; the others follow. `parts.json` says how each part went.
    """

    def __init__(self, path: Path, *, name: str, masked: Callable[[str], str], limit_s: float = 60.0) -> None:
        self._name = name
        self._masked = masked
        self._limit_s = limit_s
        self._parts: dict[str, str] = {}
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"'{path}' cannot be written: {error.strerror}; choose another --output") from error
        self._file = os.fdopen(file, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115

    @property
    def failed(self) -> list[str]:
        """The names of the parts that could not be collected."""
        return [name for name, outcome in self._parts.items() if outcome != "ok"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._add("parts.json", json.dumps(self._parts, indent=2))
        self._tar.close()
        self._file.close()

    def add(self, name: str, collect: Callable[[], Any]) -> None:
        """Add what *collect* returns: a text as it is, any other value as JSON."""
        done: list[str] = []

        def work() -> None:
            try:
                value = collect()
                text = value if isinstance(value, str) else json.dumps(value, indent=2, default=str, sort_keys=True)
                done.extend(("ok", text))
            except Exception as error:  # whatever it is, the archive is to tell it
                done.extend((f"{type(error).__name__}: {error}", ""))

        thread = threading.Thread(target=work, name=f"collecting {name}", daemon=True)
        thread.start()
        thread.join(self._limit_s)
        outcome, text = done or (f"it took longer than {self._limit_s:.0f} s", "")
        self._parts[name] = self._masked(outcome)
        if outcome == "ok":
            self._add(name, text)
        else:
            self._add(f"{name}.error", outcome)

    def _add(self, name: str, text: str) -> None:
        content = self._masked(text if text.endswith("\n") else f"{text}\n").encode("utf-8", "replace")
        member = tarfile.TarInfo(f"{self._name}/{name}")
        member.size, member.mtime, member.mode = len(content), int(time.time()), 0o600
        self._tar.addfile(member, io.BytesIO(content))
