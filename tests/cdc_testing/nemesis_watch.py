"""Everything that watches a nemesis run: the sink's reader, the encoder's decoder, and all validators that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from cdc_conformance.validators import (
    BeforeAfterValidator,
    CompletenessValidator,
    CountValidator,
    FingerprintValidator,
    KeyInValueValidator,
    MvccValidator,
    OrderValidator,
    PrefixValidator,
    ResolvedValidator,
    Row,
    TopicValidator,
    Validator,
)
from cdc_testing.nemesis_consumer import NemesisConsumer
from cdc_testing.nemesis_ledger import Ledger, Projected, RowValidator

from cdc_core import Decoder, SinkReader, TableSchema, Timestamp
from cdc_core.config.resolved import Job
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import EncoderRegistration, SinkRegistration

__all__ = ["Watch"]


class Watch:
    """Looks at the sink of *job*. With *exact* the ledger knows when each transaction was committed."""

    def __init__(self, job: Job, host: PluginHost, *, prefix: str, exact: bool) -> None:
        self._job = job
        self._exact = exact
        self._prefix = prefix
        self._started = 0
        with closing(job.open_sink()) as sink:
            topics = {name.table: sink.topic(name).removeprefix(prefix) for name in job.table_names}
            self._reader = _reader(host, job.sink.name, sink.context)
        self.ledger = Ledger(topics)
        self.look_at_schemas()
        self.consumer = NemesisConsumer(
            self._reader, _decoder(host, job), lambda: self._schemas, self._validators, prefix=prefix
        )

    def look_at_schemas(self) -> None:
        """Take note of the tables' shapes. After each change of them."""
        with closing(self._job.open_rangefeed()) as rangefeed:
            schemas = {schema.name.table: schema for schema in rangefeed.schemas()}
        self._schemas: Mapping[str, TableSchema] = {
            topic: schemas[table] for table, topic in self.ledger.topics.items()
        }

    def begun(self) -> None:
        """The changefeed has begun: from here on every version must arrive."""
        self._started = len(self.ledger.commits)

    def close(self) -> None:
        self._reader.close()

    def _validators(self, all_arrived: bool) -> Sequence[Validator]:
        envelope, commits = self._job.envelope(), self.ledger.commits
        endpoints = [
            (topic if topic is None else topic.removeprefix(self._prefix), partition)
            for topic, partition in self._reader.endpoints()
        ]
        as_of = self._as_of if self._exact else None
        found: list[Validator] = [
            OrderValidator(),
            TopicValidator(set(self.ledger.topics.values()), in_value=envelope.topic_in_value),
            RowValidator(self.ledger),
            Projected(BeforeAfterValidator(as_of, diff=envelope.diff)),
            Projected(PrefixValidator(commits, endpoints=endpoints, whole=all_arrived)),
        ]
        if self._exact:
            found.append(Projected(FingerprintValidator(self.ledger.state_at, endpoints=endpoints)))
        if envelope.mvcc_timestamp:
            found.append(MvccValidator())
        if envelope.key_in_value:
            found.append(KeyInValueValidator({topic: ["id"] for topic in self.ledger.topics.values()}))
        if all_arrived:
            found += [
                Projected(CompletenessValidator(commits, started=self._started)),
                ResolvedValidator(endpoints, each=False),
                CountValidator(least_rows=1, least_marks=1),
            ]
        return found

    def _as_of(self, topic: str, key: tuple[Any, ...], timestamp: Timestamp) -> Row | None:
        return self.ledger.state_at(timestamp)[topic].get(key)


def _reader(host: PluginHost, name: str, context: Any) -> SinkReader:
    registration = host.component("sink", name)
    assert isinstance(registration, SinkRegistration)
    reader: SinkReader = load_class(registration.reader, owner=f"reader of {name}", base=SinkReader)(context)
    return reader


def _decoder(host: PluginHost, job: Job) -> Decoder:
    registration = host.component("encoder", job.encoder.name)
    assert isinstance(registration, EncoderRegistration)
    cls = load_class(registration.decoder, owner=f"decoder of {job.encoder.name}", base=Decoder)
    decoder: Decoder = cls(job.open_encoder().context)
    return decoder
