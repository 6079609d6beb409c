"""Drawn histories: `python tests/engine/histories.py --seed 1 --statements 10000`. Exit status 1 for a difference."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # as pytest's `pythonpath` does

from cdc_rangefeed_postgres import planner  # noqa: E402
from cdc_testing.copied_postgres import CopiedPostgres  # noqa: E402
from cdc_testing.drawn_history import DifferenceError, DrawnHistory  # noqa: E402
from cdc_testing.fixtures import fresh_database  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw histories, and compare a consumer with the database at marks.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--statements", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the history to begin with")
    parser.add_argument("--go-on", action="store_true", help="go on after a difference")
    options = parser.parse_args()
    planner._IDLE_NS = 10_000_000
    counts: Counter[str] = Counter()
    number = options.first
    with CopiedPostgres(settings={"fsync": "off", "max_connections": "200"}) as server:
        while counts["statements"] < options.statements:
            with fresh_database(server) as uri, tempfile.TemporaryDirectory(prefix="histories") as directory:
                seed = f"{options.seed}/{number}"
                history = DrawnHistory(uri, Path(directory), seed=seed)
                try:
                    history.run(random.Random(seed).randint(60, 240))
                except DifferenceError as error:
                    print(error, flush=True)
                    counts["differences"] += 1
                    if not options.go_on:
                        break
                finally:
                    counts += history.counts
            counts["histories"] += 1
            print(f"{seed}: {dict(counts)}{history.ended}", file=sys.stderr, flush=True)
            number += 1
    print(f"seed {options.seed}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(counts["differences"] > 0)


if __name__ == "__main__":
    sys.exit(main())
