"""Run the benchmarks, print one table and write build/bench.json.

    python tests/benchmarks/run.py [--quick | --scale SHARE] [--only NAME ... | --docs]

Nothing here asserts a time: whether each target is met is printed, and the exit status tells only whether every
benchmark ran.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[0] = str(_TESTS)  # not the directory of this file: our modules are benchmarks.*, here and in every child
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH", "")]))

_QUICK = 0.1
_BENCHMARKS = {
    "fetch": "read the log through ADBC as Arrow",
    "decode": "decode log messages into row batches",
    "encode": "rows to JSON, Parquet, CSV and Protocol Buffers, beside loops over orjson and protobuf and bare writers",
    "avro": "rows to Avro, beside a loop over fastavro",
    "sink": "encoded rows to files",
    "s3": "rows to objects in an S3 store, beside bare s3fs loops",
    "kafka_sink": "rows to acknowledged messages in Kafka, beside a bare produce_batch loop",
    "webhook": "rows to acknowledged requests over TLS, beside a bare loop of the same client",
    "dead_letters": "a slice with one bad row in a million, beside the same without it",
    "engine": "ready rows through Spark to nowhere",
    "log": "a backlog to JSON files, beside Debezium, mq-bridge, rivet and pg_recvlogical",
    "query": "a backlog to JSON files through a query, beside the same without one",
    "metrics": "a backlog to JSON files while metrics are scraped each second, beside the same without metrics",
    "scan": "the initial scan to JSON files, beside Debezium",
    "backfill": "a table read again after ALTER TABLE, beside its initial scan, while it changes",
    "kafka": "a backlog to JSON in Kafka, beside Debezium and Kafka Connect",
    "start": "from the start of cdc run to the first row in a file",
    "latency": "from commit to durable file",
    "kafka_latency": "from commit to a consumer of Kafka",
    "repeats": "rows that a consumer of Kafka gets twice when the driver is killed",
    "feeds": "what 1, 5 and 20 changefeeds of one process take, idle and busy",
    "takeover": "from the SIGKILL of a node to the first step of its job on another one",
    "nodes": "a scan into a slow endpoint on one, two and three nodes",
    "delivery": "a backlog into a slow endpoint, delivered by one task and by four",
    "rolling": "rows that arrive twice when three nodes are restarted one after the other",
    "store": "what three nodes and jobs without changes ask of the progress store",
    "page": "the page of 100 changefeeds in Chromium, until its lines are shown",
    "audit": "an audit of JSON files while they grow, with three differences that it must find",
    "memory": "peak memory of every process over a long backlog and a huge transaction",
}


def main() -> int:
    from benchmarks import page
    from benchmarks.context import Bench, Sizes
    from benchmarks.report import Figure, print_table, write_json

    arguments = _arguments()
    scale = _QUICK if arguments.quick else arguments.scale
    build = _TESTS.parent / "build"
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    with Bench(build / "bench", Sizes.scaled(scale)) as bench:
        for name in page.BENCHMARKS if arguments.docs else arguments.only or _BENCHMARKS:
            started = time.monotonic()
            print(f"{name}: {_BENCHMARKS[name]} …", file=sys.stderr, flush=True)
            try:
                for figure in importlib.import_module(f"benchmarks.bench_{name}").run(bench):
                    figures.append(figure)
            except Exception as error:
                traceback.print_exc()
                failed[name] = str(error)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    path = build / "bench.json"
    write_json(path, figures, scale=scale, failed=failed)
    print_table(figures)
    print(f"written to {path}")
    if arguments.docs and not failed:
        page.write_page(path, _TESTS.parent / "docs")
    for name, error_text in failed.items():
        print(f"benchmark {name} failed: {error_text}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {name:13} {what}" for name, what in _BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        description="Run the benchmarks.",
        epilog=f"benchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--docs", action="store_true", help="measure the log beside other readers, and put it into docs/benchmarks.md"
    )
    parser.add_argument("--only", action="append", choices=list(_BENCHMARKS), metavar="NAME", help="may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help=f"the same as --scale {_QUICK:g}: a look, not a measurement"
    )
    parser.add_argument("--scale", type=float, default=1.0, metavar="SHARE", help="share of the full sizes; default 1")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
