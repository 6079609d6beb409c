"""`cdc demo postgres`: a changefeed from a busy PostgreSQL server to files, and an audit of the files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cdc_sink_cloudstorage.names import ResolvedFile, parse_name

from cdc_core import Timestamp
from cdc_rangefeed_postgres.demo.audit import audit
from cdc_rangefeed_postgres.demo.empty import stay
from cdc_rangefeed_postgres.demo.movr import TABLES
from cdc_rangefeed_postgres.demo.saying import say, shown
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.demo.session import DemoOptions, Shop

_FEED = """\
# The changefeed of the demo. The password is in another file, so you can share this one.
[changefeed.movr]
{source}sink = "file://{files}"
format = "json"

[changefeed.movr.options]
updated = true
resolved = "1s"
min_checkpoint_frequency = "1s"
"""


def demo(arguments: Sequence[str]) -> int:
    """Run the demo and return its exit status: 0 when the audit finds that the files match the database.

    With --empty, only keep an empty server until Ctrl-C.
    """
    options = DemoOptions.parse(arguments, name="postgres", summary=_summary(), directory="cdc-demo")
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.empty:
        with EmbeddedPostgres() as server:
            return stay(server, options.directory)
    for part in ("files", "state"):
        shutil.rmtree(options.directory / part, ignore_errors=True)
    with EmbeddedPostgres() as server:
        return _run(Shop(server, options), options.directory)


def _run(shop: Shop, directory: Path) -> int:
    files, file = directory / "files", directory / "demo.toml"
    file.write_text(_FEED.format(source=shop.source, files=files))
    say(f"The changefeed is {shown(file)}")
    if not shop.follow(file, directory / "state", resolved=lambda: _resolved(files)):
        return 1
    found = audit(files, shop.uri, TABLES)
    newest = max(files.rglob("*-rides-*.ndjson"), default=files)
    say(f"The files are in {shown(files)}. To see the newest:  tail -n 3 {shown(newest)}")
    say("Next: write a file like demo.toml for your own database, then run  cdc check FILE  and  cdc run FILE")
    say(f"demo: {found}")
    return 0 if found.passed else 1


def _resolved(files: Path) -> Timestamp:
    names = (parse_name(path.name) for path in files.rglob("*.RESOLVED"))
    return max((name.timestamp for name in names if isinstance(name, ResolvedFile)), default=Timestamp())


def _summary() -> str:
    assert __doc__ is not None
    return __doc__.partition(": ")[2]
