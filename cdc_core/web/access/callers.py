"""Who may ask: the file of tokens and client certificates with their roles."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.web.endpoint import Role

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
ROLES = {role.name.lower(): role for role in Role if role}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One line of the file: who it is, what they may do, and how they show it.

    `proof` is the SHA-256 of a token, as `sha256:HEX`, or the subject of a client certificate, as
    `subject:CN=ann,O=Shop`.
    """

    name: str
    role: Role
    proof: str


def stamp_of(path: str | Path) -> tuple[int, ...] | None:
    """Return what differs when a file has been written again; None when it cannot be seen."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return (seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_mode)


def is_caller_name(name: str) -> bool:
    """Return whether a caller may have this name."""
    return _NAME.fullmatch(name) is not None


def token_hash(token: str) -> str:
    """Return what the file has of *token*. Tokens are long and random, so one round of SHA-256 hides them."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_callers(path: Path) -> list[Caller]:
    """Return who the file at *path* names. Raises: ConfigError with the line, which never quotes what may be secret."""
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--tokens {path}: this file cannot be read: {why}; write it with `cdc token`") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"--tokens {path}: other users may write to this file; run `chmod go-w {path}`")
    return list(_parsed(path, lines))


def _parsed(path: Path, lines: Sequence[str]) -> Iterator[Caller]:
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        where = f"--tokens {path}, line {number}"
        if len(words) < 3 or not (_HASH.fullmatch(words[2].strip()) or words[2].startswith("subject:")):
            raise ConfigError(f"{where}: this is not NAME ROLE sha256:HASH; write it with `cdc token`")
        name, role, proof = words[0], words[1], words[2].strip()
        if not is_caller_name(name):
            raise ConfigError(f"{where}: this is not a valid name; use 1 to 64 of the characters A-Z a-z 0-9 _ . @ -")
        if role not in ROLES:
            raise ConfigError(f"{where}: '{role}' is not a role{did_you_mean(role, ROLES)}")
        if name in names:
            raise ConfigError(f"{where}: '{name}' appears twice; give each token its own name")
        names.add(name)
        yield Caller(name=name, role=ROLES[role], proof=proof)


class Callers:
    """The callers of a file, as it is now. Safe with several threads. Raises: ConfigError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen = stamp_of(path)
        self._callers: list[Caller] | None = read_callers(path)

    def refresh(self) -> str | None:
        """Read the file again if it has changed. Return what is wrong with it, once, if it cannot be read.

        Until it can be read again, no caller is known: a revoked token must not stay valid.
        """
        with self._lock:
            stamp = stamp_of(self.path)
            if stamp == self._seen:
                return None
            self._seen = stamp
            try:
                self._callers = read_callers(self.path)
            except ConfigError as error:
                self._callers = None
                return str(error)
            return None

    @property
    def are_known(self) -> bool:
        return self._callers is not None

    def by_token(self, token: str) -> Caller | None:
        """Return whose *token* this is. It takes as long for a wrong one as for a right one."""
        return self._by_proof(token_hash(token))

    def by_subject(self, subject: str) -> Caller | None:
        """Return whose certificate has this *subject*."""
        return self._by_proof(f"subject:{subject}")

    def _by_proof(self, proof: str) -> Caller | None:
        found = None
        for caller in self._callers or ():
            if hmac.compare_digest(caller.proof.encode(), proof.encode()):
                found = caller
        return found
