"""A storm over nodes: `python tests/jobs/storm.py --seed 1 --minutes 5 --lease 6`. Exit status 0 when all was right.

With `--cluster`, as root, the nodes are on hosts of their own, and each job runs on all of them. With `--rows` too, one
job scans a table of so many rows into S3, and one feeds another, with `--rate` changes a second, into Kafka.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[0] = str(TESTS)  # as pytest's `pythonpath` does
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))

from cdc_sink_kafka.demo.servers import KafkaBroker  # noqa: E402
from cdc_testing.bulk_storm import BulkStorm, HostsStore  # noqa: E402
from cdc_testing.cluster_storm import CLUSTER_EVENTS, ClusterStorm, HostsBroker, reachable  # noqa: E402
from cdc_testing.copied_postgres import CopiedPostgres  # noqa: E402
from cdc_testing.hosts import OUTSIDE, Bridge  # noqa: E402
from cdc_testing.node_storm import EVENTS, Storm  # noqa: E402
from cdc_testing.versions import MAJORS, binaries_of  # noqa: E402

_SOURCE = {"fsync": "off", "max_connections": "400", "max_replication_slots": "60", "max_wal_senders": "60"}
"""Each job has a slot and may have a temporary copy and a connection that follows the log."""
_BROKER = {"log.message.timestamp.type": "LogAppendTime"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Hurt three nodes for a while, and see that no job loses anything.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lease", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--every", type=float, default=15.0, metavar="SECONDS", help="between events, on average")
    parser.add_argument("--recovery", type=float, metavar="SECONDS", help="a job that takes longer is a failure")
    parser.add_argument("--directory", type=Path, help="keeps logs and files; default: a temporary one")
    parser.add_argument("--no-kafka", action="store_true", help="files only")
    parser.add_argument("--cluster", action="store_true", help="each job runs on all nodes; best with few --jobs")
    parser.add_argument("--rows", type=int, help="of the table that is scanned; needs --cluster")
    parser.add_argument("--rate", type=int, default=10_000, metavar="CHANGES", help="with --rows: a second")
    parser.add_argument("--only", action="append", choices=[*EVENTS, *CLUSTER_EVENTS], help="begin with this event")
    parser.add_argument("--postgres", type=int, choices=MAJORS, help="version of the source; default: the newest")
    options = parser.parse_args()
    binaries = None if options.postgres is None else binaries_of(options.postgres)
    with ExitStack() as stack:
        directory = options.directory and options.directory.absolute()
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm", dir="/var/tmp")))
        if options.cluster:
            stack.enter_context(Bridge())
        listen = {"listen_addresses": f"127.0.0.1,{OUTSIDE}"} if options.cluster else {}
        source = stack.enter_context(CopiedPostgres(settings=_SOURCE | listen, binaries=binaries))
        kafka = HostsBroker if options.cluster else KafkaBroker
        broker = None if options.no_kafka else stack.enter_context(kafka(settings=_BROKER))
        uri = reachable(source, OUTSIDE) if options.cluster else source.uri()
        common: dict[str, Any] = {
            "seed": options.seed,
            "lease_s": options.lease,
            "bootstrap_servers": None if broker is None else broker.bootstrap_servers,
        }
        storm: Storm
        if options.rows is not None:
            objects = stack.enter_context(HostsStore())
            common |= {"objects": objects, "local": source.uri(), "rows": options.rows, "rate": options.rate}
            storm = BulkStorm(directory, uri, **common)
        else:
            storm = (ClusterStorm if options.cluster else Storm)(directory, uri, jobs=options.jobs, **common)
        stack.enter_context(storm)
        limit = options.lease + 10 if options.recovery is None else options.recovery
        try:
            storm.rage(for_s=options.minutes * 60, every_s=options.every, only=options.only or ())
        finally:
            print("\n".join([f"seed {options.seed}, lease {options.lease:g} s", *storm.lines(limit)]), flush=True)
    return int(options.recovery is not None and storm.figures.slow(limit) > 0)


if __name__ == "__main__":
    sys.exit(main())
