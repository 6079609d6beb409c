"""Which nodes of a cluster deliver what: by where a job may run, and by the strategy for sources that keep replicas."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from os import pathsep
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.distributions import install
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes

from cdc_core.changefeeds.service import Changefeeds

pytestmark = pytest.mark.slow
PLACES = {"127.0.0.1": "region=eu,zone=1", "127.0.0.2": "region=eu,zone=2", "127.0.0.3": "region=us"}
LEASES = [1, 2, 1, 3, 1] * 3 + [2, 1, 3]
"""Which node of the source has the lease of each range. All have a replica. A step reads some of them at once."""
_CALM = ("--lease", "1m", "--heartbeat", "2s", "--poll", "250ms")
"""Nothing is to be taken over."""
ROWS = 5
"""Rows of each range, which is read at once."""
SINK = """
    import json, uuid
    from pathlib import Path
    from urllib.parse import urlsplit

    from cdc_core import Destination, SinkRegistration, hookimpl
    from cdc_core.engine.host_requirements import this_executor
    from cdc_sink_null.sink import NullSink


    class Hosts(NullSink):
        '''Writes one file a slice, in the directory of the URI: the host that delivered it, and the keys.'''

        keys = ()

        def emit(self, rows):
            batch = self.context.encoder.encode(rows, topic="t")
            self.keys = [*self.keys, *(key.decode() for key in batch.key.to_pylist())]

        def flush(self):
            flushed, keys, self.keys = super().flush(), self.keys, ()
            if keys:
                file = Path(urlsplit(self.context.uri).path) / uuid.uuid4().hex
                file.with_suffix(".new").write_text(json.dumps([this_executor().host, keys]))
                file.with_suffix(".new").rename(file)
            return flushed


    class Anywhere(Destination):
        def check(self):
            pass

        def longest_call_s(self):
            return 0.0


    @hookimpl
    def cdc_register_sinks():
        yield SinkRegistration(
            name="hosts",
            sink="hosts_sink:Hosts",
            resolved_sink="cdc_sink_null.sink:NullResolvedSink",
            destination="hosts_sink:Anywhere",
            options="cdc_sink_null.options:NullOptions",
            schemes=("hosts",),
            output="messages",
            summary="Tells which host delivered what",
            refuses_rows=False,
        )
"""


@pytest.fixture
def nodes(postgres_server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    site = tmp_path / "site"
    install(site, "cdc-hosts-sink", "1.0", module="hosts_sink", source=SINK)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("CDC_CLUSTER_SECRET", "only-the-nodes-know-it")
    path, port = pathsep.join(sys.path), str(free_port())
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, python_path=path) as nodes:
        for address, place in PLACES.items():
            where = ("--address", address, "--master-port", port, "--cores", "1", "--memory", "2gb")
            nodes.begin(f"n{address[-1]}", locality=place, options=(*_CALM, *where, "--spark", "master=nodes"))
        for address in PLACES:
            nodes.await_join(f"n{address[-1]}")
        yield nodes


@pytest.fixture
def source(tmp_path: Path) -> SimulatedDatabase:
    found = SimulatedDatabase.create(tmp_path / "source", seed=3, localities=list(PLACES.values()))
    found.create_table("t")
    for id_ in range(ROWS * len(LEASES)):
        found.put("t", id=id_, n=0)
    for number, holder in enumerate(LEASES):
        if number:
            found.split("t", at=number * ROWS)
        found.transfer_lease("t", at=number * ROWS, to=holder)
    return found


class Places:
    """Runs jobs from *source*, one after another, and says where their scans were planned and delivered."""

    def __init__(self, nodes: Nodes, source: SimulatedDatabase, directory: Path) -> None:
        self._nodes, self._source, self._directory = nodes, source, directory

    def run(self, name: str, strategy: str, *, within: str = "") -> tuple[list[int], list[int], int]:
        """Run a job until every row has arrived, once.

        Return how many slices were planned at each place, how many its host delivered, and how many of the latter were
        planned there.
        """
        out, before = self._directory / name, len(self._source.served())
        out.mkdir()
        options = {"placement": strategy, "scan_chunk_rows": ROWS, "delay": "300ms"}
        uri = f"simulated://{self._source.directory}"
        self._nodes.create(name, uri, ["t"], f"hosts://{out}", locality=within, **options)
        self._nodes.eventually(f"{name} delivers all", lambda: len(keys(slices(out))) >= ROWS * len(LEASES))
        Changefeeds(self._nodes.store).pause(name, "the next one has its turn")
        self._nodes.until(name, "paused")
        delivered = slices(out)
        assert sorted(keys(delivered)) == sorted(f"[{id_}]" for id_ in range(ROWS * len(LEASES)))
        scanned = [read for read in self._source.served()[before:] if read.after is None]
        planned = Counter(str(read.wanted) for read in scanned)
        hosts = Counter(host for host, _ in delivered)
        assert hosts == Counter(read.host for read in scanned), "who reads a slice delivers it"
        near = sum(PLACES[read.host] == str(read.wanted) for read in scanned)
        return [planned[place] for place in PLACES.values()], [hosts[host] for host in PLACES], near


def slices(directory: Path) -> list[tuple[str, list[str]]]:
    """Return the host that delivered each slice, and its keys."""
    return [json.loads(file.read_text()) for file in directory.iterdir() if not file.suffix]


def keys(delivered: list[tuple[str, list[str]]]) -> list[str]:
    return [key for _, each in delivered for key in each]


def test_a_pinned_job_delivers_nowhere_else_and_another_where_its_strategy_prefers(
    nodes: Nodes, source: SimulatedDatabase, tmp_path: Path
) -> None:
    """A node that is idle takes slices that were planned elsewhere. tests/test_placement.py tries other strategies."""
    places = Places(nodes, source, tmp_path)
    planned, delivered, _ = places.run("pinned", "leaseholder", within="region=eu")
    assert (planned[2], delivered[2]) == (0, 0)
    planned, delivered, near = places.run("free", "leaseholder")
    assert planned == [10, 4, 4]
    assert all(delivered)
    assert near > len(LEASES) / 2, "by chance it would be a third"
