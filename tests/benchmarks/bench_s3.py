"""The cloud-storage sink with an S3 store, compared with s3fs loops that upload the same objects.

The store is SeaweedFS on this machine, which checks signatures. The sink and the loops write the same bodies, byte for
byte, under the same number of keys, with clients that have the same settings and stay open. They take turns for several
rounds, and the medians are compared.

The time is measured from the first call until every object is acknowledged. The sink starts with Arrow rows: it encodes
them as JSON lines, makes files of 16 MB, computes their checksums, and uploads them in the background in parts. The
first loop has the bodies ready and calls `pipe_file` for one after the other, with one request for each. The second
loop has four uploads at the same time (`asyncio.gather`), as many as the sink may have.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.bench_encode import encoder
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.rows import BATCH_ROWS, batches_of, row_batch, sink_context, write_slice
from benchmarks.timing import take_turns
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.s3 import S3Store
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_testing.object_stores import BUCKET, S3_KEY, S3_SECRET, SeaweedFS
from fsspec.asyn import sync

_AT_ONCE = 4


def run(bench: Bench) -> Iterator[Figure]:
    count = max(1, bench.sizes.part_rows // BATCH_ROWS)
    whole = row_batch(count * BATCH_ROWS)
    batches = batches_of(whole)
    with SeaweedFS() as store:
        options = CloudStorageOptions(
            aws_access_key_id=S3_KEY,
            aws_secret_access_key=S3_SECRET,
            aws_endpoint=store.endpoint,
            aws_region="us-east-1",
        )
        sink = CloudStorageSink(sink_context(f"s3://{BUCKET}/sink", options, encoder()))
        steps = itertools.count()
        write_slice(sink, batches, step=next(steps))  # connects, and writes the objects that the loops upload
        fs = S3Store.new_client(options)
        bodies = [fs.cat_file(path) for path in sorted(fs.find(f"{BUCKET}/sink")) if path.endswith(".ndjson")]
        keys = (f"{BUCKET}/bare/{number}" for number in itertools.count())
        try:
            turns = take_turns(
                {
                    "sink": lambda: write_slice(sink, batches, step=next(steps)),
                    "bare": lambda: [fs.pipe_file(next(keys), body) for body in bodies],
                    "at_once": lambda: sync(fs.loop, _upload_at_once, fs, keys, bodies),
                }
            )
        finally:
            sink.close()
    nbytes = sum(map(len, bodies))
    rates = {name: [len(whole) / turn.elapsed_s for turn in taken] for name, taken in turns.items()}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    name = "part: cloud-storage sink, Arrow rows to acknowledged objects in S3"
    yield Figure(
        name=name,
        value=medians["sink"],
        unit="rows/s",
        peer=medians["bare"],
        peer_name="s3fs loop",
        target=Target(per_peer=0.7),
        details={
            "rounds": rates,
            "objects": [len(body) for body in bodies],
            "bytes_per_s": {name: nbytes / len(whole) * median for name, median in medians.items()},
        },
    )
    yield Figure(
        name=f"{name}, beside {_AT_ONCE} at a time",
        value=medians["sink"],
        unit="rows/s",
        peer=medians["at_once"],
        peer_name="s3fs loop",
    )


async def _upload_at_once(fs: Any, keys: Iterator[str], bodies: Sequence[bytes]) -> None:
    waiting = iter(bodies)

    async def upload() -> None:
        for body in waiting:
            await fs._pipe_file(next(keys), body)

    await asyncio.gather(*(upload() for _ in range(_AT_ONCE)))
