"""What `cdc debug` collects, and the masking of texts that leave the host. What collects may raise anything."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cdc_core.cli.explain import explained
from cdc_core.config.interpolation import reference_values
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import check_sink, check_source, source_clock
from cdc_core.errors import ConfigError
from cdc_core.masking import MASK, is_secret_name, mask, secret_forms, uri_secrets
from cdc_core.plugins.host import PluginHost
from cdc_core.shards.shard import shard_feed_id
from cdc_core.store.values import ChangefeedRecord

_MAX_LOG_BYTES = 1_000_000
_VARIABLES = re.compile(r"(CDC|HADOOP|JAVA|KUBERNETES|LANG|LC|PG|PYSPARK|PYTHON|SPARK|TZ|VIRTUAL_ENV)(_|$)")


def versions() -> dict[str, Any]:
    """Return the versions of Python, Java, Spark, every installed distribution, and the plugins with their problems."""
    home, path = os.environ.get("JAVA_HOME"), os.environ.get("PATH", os.defpath)
    java = shutil.which("java", path=f"{home}/bin{os.pathsep}{path}" if home else path)
    shown = "none" if java is None else subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    installed = {found.metadata["Name"]: found.version for found in distributions()}
    return {
        "python": sys.version,
        "executable": sys.executable,
        "java": shown.splitlines(),
        "spark": installed.get("pyspark") or installed.get("pyspark-client") or "none",
        "plugins": [dataclasses.asdict(listed) for listed in PluginHost.load().listing()],
        "distributions": dict(sorted(installed.items(), key=lambda pair: str(pair[0]).lower())),
    }


def machine(state_dir: Path) -> dict[str, Any]:
    """Return facts about this host, and the variables that change how programs here run."""
    place = next(parent for parent in (state_dir, *state_dir.parents) if parent.exists())
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("NOFILE", "NPROC", "AS")}
    memory = Path("/proc/meminfo")
    control = Path("/sys/fs/cgroup/memory.max")
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "time": datetime.now(UTC).isoformat(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load": os.getloadavg(),
        "memory": memory.read_text().splitlines()[:5] if memory.exists() else None,
        "memory_limit": control.read_text().strip() if control.exists() else None,
        "disk": {str(place): shutil.disk_usage(place)._asdict()},
        "limits": limits,
        "environment": {
            name: MASK if is_secret_name(name) else value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.match(name)
        },
    }


def configuration(feed: ResolvedChangefeed) -> dict[str, Any]:
    """Return the definition, every option of the changefeed with its value, and the settings of Spark."""
    return {
        "definition": feed.definition(),
        "options": _without_secrets(dataclasses.asdict(feed.options)),
        "spark": _without_secrets(feed.spark),
        "source": feed.shown_source,
        "sink": feed.shown_destination,
    }


def explanation(feed: ResolvedChangefeed) -> str:
    """Return what `cdc explain` prints, or that there is no query."""
    if not feed.queries().exist:
        return "the changefeed has no query"
    return "\n".join(explained(feed))


def source(feed: ResolvedChangefeed, known: ChangefeedRecord | None) -> dict[str, Any]:
    """Return the tables as the source describes them, its clock, and what it keeps for the changefeed."""
    tables = [
        {
            "table": schema.name.full,
            "version": schema.version,
            "key": list(schema.primary_key),
            "columns": {column.name: column.type.source for column in schema.columns},
        }
        for schema in check_source(feed)
    ]
    kept: list[dict[str, Any]] | str = "the source does not list what changefeeds have created"
    if known is not None:
        count = len(known.sources)
        mine = {known.feed_id, *(shard_feed_id(known.feed_id, index) for index in range(count) if count > 1)}
        with closing(Parts(feed.for_attempt(feed_id=known.feed_id, epoch=0)).open_rangefeed()) as rangefeed:
            created = rangefeed.created()
        if created is not None:
            kept = [dataclasses.asdict(entry) for entry in created if entry.feed_id in mine]
    return {"now": str(source_clock(feed)), "tables": tables, "created": kept}


def sink(feed: ResolvedChangefeed) -> dict[str, Any]:
    """Return that the sink can be reached and takes rows of the tables. Creates nothing there."""
    check_sink(feed, check_source(feed))
    return {"sink": feed.shown_destination, "check": "ok"}


def last_lines(path: Path) -> str:
    """Return the end of a log file, whole lines."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _MAX_LOG_BYTES))
        content = file.read(_MAX_LOG_BYTES)
    if size > _MAX_LOG_BYTES:
        content = content.partition(b"\n")[2]
    return content.decode("utf-8", "replace")


def _without_secrets(values: Any) -> dict[str, Any]:
    return {
        name: MASK if value and is_secret_name(name) else _without_secrets(value) if isinstance(value, dict) else value
        for name, value in dict(values).items()
    }


def require_file(path: Path) -> Path:
    """Return *path*. Raises: ConfigError when it is not a file that can be read."""
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ConfigError(f"--log: the file '{path}' does not exist or cannot be read")
    return path


_MIN_LENGTH = 4
"""A shorter value of a variable is not a secret that could be told from other text."""
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_LOGIN = re.compile(r"(://[^\s/?#:@\"']*:)(?:([^\s\"']+)(?=@)|[^\s\"']++)")
"""A password ends at the last `@`. Without one, all up to the next space is taken, so as not to be searched again."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>(?:\w+ )*PRIVATE KEY)-----"
    r"(?:(?:[^-]|-(?!----))*+-----END (?P=kind)-----|(?:[\w+/=:,\s\\]|-(?!-))*+)"
    r"|(?<![\w+/=\s])[\w+/=\s]++-----END (?:\w+ )*PRIVATE KEY-----"
)
"""A private key as PEM, also when the text lacks its end or its beginning."""
_NAME = re.compile(r"""(?<![\w.-])(?:([\w.-]++)\\*["']?\s*[:=]\s*|(--[\w.-]++)\\*["']?[\s,]++(?!-))""")
_VALUE = re.compile(
    r"""\$\{[^{}]*\}|(?:(?:Basic|Bearer|Token|ApiKey)\s+)?"""
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?P<quote>\\+["']).*?(?P=quote)|[^\s"'\\&;]*[^\s"'\\&;,{}\[\]()])""",
    re.IGNORECASE,
)
"""A name and its value: `name=value`, `"name": "value"`, `name='value'`, `--name value`, and the same inside of another
quoted text. A bare value may have commas and brackets; those at its end may belong to what is around it, and stay."""
_SCHEMED = re.compile(r"\b(Basic|Bearer)\s+[A-Za-z0-9+/._~=-]{6,}", re.IGNORECASE)


def masked_text(text: str, secrets: Iterable[str]) -> str:
    """Return *text* without *secrets*, passwords in URIs, private keys, and values under secret-looking names.

    References such as `${PASSWORD}`, numbers below 1000, and the words true, false, null and none stay.
    """
    text = _PRIVATE_KEY.sub(MASK, mask(text, secrets))
    text = _LOGIN.sub(_without_password, text)
    text = _SCHEMED.sub(lambda found: f"{found[1]} {MASK}", text)
    return "".join(_without_assigned(text))


def referred_secrets(definition: Any) -> frozenset[str]:
    """Return, in every form, what the references in *definition* stand for: each may be a secret."""
    values = reference_values(definition, environ=os.environ)
    return secret_forms({value for value in values if len(value) >= _MIN_LENGTH}.union(*map(uri_secrets, values)))


def environment_secrets(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return, in every form, the values of variables whose names look secret, and the secrets in URIs."""
    found: set[str] = set()
    for name, value in environ.items():
        if len(value) >= _MIN_LENGTH and is_secret_name(name):
            found.add(value)
        found |= uri_secrets(value) if "://" in value else set()
    return secret_forms(found)


def _without_password(login: re.Match[str]) -> str:
    return login[0] if login[2] is None or _REFERENCE.fullmatch(login[2]) else login[1] + MASK


def _without_assigned(text: str) -> Iterator[str]:
    """Yield the pieces of *text*, with the mask in place of values under secret-looking names."""
    done = 0
    for name in _NAME.finditer(text):
        value = _VALUE.match(text, name.end()) if name.start() >= done and is_secret_name(name[1] or name[2]) else None
        if value is None or _is_harmless(value[0].strip("\\\"'")):
            continue
        quote = re.match(r"\\*[\"']|", value[0])
        edge = "" if quote is None else quote[0]
        yield f"{text[done : value.start()]}{edge}{MASK}{edge}"
        done = value.end()
    yield text[done:]


def _is_harmless(value: str) -> bool:
    if not value or _REFERENCE.fullmatch(value) or value == MASK:
        return True
    return value.lower() in ("true", "false", "null", "none") or (value.isdigit() and int(value) < 1000)
