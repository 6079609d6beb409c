"""Kills a changefeed into files, and the store that holds them: `python tests/kills/run.py --help`.

Exit status: 0 when the reader of manifests found every row exactly once, and the reader of names at least once and in
order.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # as pytest's `pythonpath` does

from cdc_testing.copied_postgres import CopiedPostgres  # noqa: E402
from cdc_testing.kill_run import KillRun  # noqa: E402
from cdc_testing.object_stores import SeaweedFS  # noqa: E402


def main() -> int:
    options = _options()
    directory = options.directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with ExitStack() as stack:
        postgres = stack.enter_context(CopiedPostgres(settings={"fsync": "off"}))
        store = stack.enter_context(SeaweedFS()) if options.sink == "s3" else None
        sink = f"file://{directory}/files" if store is None else store.uri(f"kills/{options.seed}")
        run = KillRun(directory, postgres.uri(), sink, store=store, seed=options.seed, spark=not options.without_spark)
        report = run.play(options.kills, say=lambda line: print(line, flush=True))
    print(f"{options.sink}, seed {options.seed}: {report}")
    return 1 if report.faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--sink", choices=("file", "s3"), default="file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-spark", action="store_true", help="the changefeed is one process")
    parser.add_argument("--directory", type=Path, default=Path("build/kills"), help="emptied first")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
