"""Run one route of mq-bridge until its file has a number of lines, and write what it took.

It runs with the interpreter of an environment of its own (`peer.py` makes it), where nothing of this project is
installed. The argument is one JSON object:

    route        the route's configuration; its output is the file `path`
    path         that file
    expect       end after this many lines
    timeout_s    fail when they have not come by then
    result       file for the result

The result is one JSON object, as `debezium_engine.py` writes it. A batch is what came between two looks at the file.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from mq_bridge import Route  # type: ignore[import-not-found]

_POLL_INTERVAL_S = 0.01


def main() -> int:
    task = json.loads(sys.argv[1])
    path, expect = Path(task["path"]), task["expect"]
    path.touch()
    events, first_batch, first_s, last_s, sample = 0, 0, 0.0, 0.0, ""
    started, started_at = time.monotonic(), time.time()
    with Route.from_config(task["route"]), path.open("rb") as lines:
        while events < expect and time.monotonic() - started < task["timeout_s"]:
            data = lines.read()
            if not data:
                time.sleep(_POLL_INTERVAL_S)
                continue
            last_s = time.monotonic() - started
            if not events:
                first_s, first_batch, sample = last_s, data.count(b"\n"), data.partition(b"\n")[0].decode()
            events += data.count(b"\n")
    result = {
        "started_at": started_at,
        "events": events,
        "first_batch": first_batch,
        "first_s": first_s,
        "last_s": last_s,
        "sample": sample,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    Path(task["result"]).write_text(json.dumps(result))
    if events < expect:
        print(f"mq-bridge: {events} of {expect} changes came in time", file=sys.stderr)
    return 0 if events >= expect else 1


if __name__ == "__main__":
    sys.exit(main())
