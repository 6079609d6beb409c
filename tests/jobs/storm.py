"""A storm over nodes: `python tests/jobs/storm.py --seed 1 --minutes 5 --lease 6`. Exit status 0 when all was right."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[0] = str(TESTS)  # as pytest's `pythonpath` does
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))

from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres  # noqa: E402
from cdc_sink_kafka.demo.servers import KafkaBroker  # noqa: E402
from cdc_testing.node_storm import EVENTS, Storm  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Hurt three nodes for a while, and see that no job loses anything.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lease", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--directory", type=Path, help="keeps logs and files; default: a temporary one")
    parser.add_argument("--no-kafka", action="store_true", help="files only")
    parser.add_argument("--only", action="append", choices=EVENTS, help="begin with this event; may be repeated")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = options.directory and options.directory.absolute()
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm")))
        source = stack.enter_context(EmbeddedPostgres(settings={"fsync": "off", "max_connections": "200"}))
        broker = None if options.no_kafka else stack.enter_context(KafkaBroker())
        storm = stack.enter_context(
            Storm(
                directory,
                source.uri(),
                seed=options.seed,
                jobs=options.jobs,
                lease_s=options.lease,
                bootstrap_servers=None if broker is None else broker.bootstrap_servers,
            )
        )
        storm.rage(for_s=options.minutes * 60, only=options.only or ())
        print("\n".join([f"seed {options.seed}, lease {options.lease:g} s", *storm.told.lines()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
