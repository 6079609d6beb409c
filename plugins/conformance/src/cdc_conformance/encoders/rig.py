"""Opens the encoder under test as a job does, in every form that it can write, and reads what it wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_conformance.encoders.of_scans import OfScans, scanned
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.rows import EVERY_KIND, INT8, table
from cdc_core import (
    ConfigError,
    DecodedRow,
    Decoder,
    Encoder,
    EncoderContext,
    EncoderRegistration,
    EnvelopeOptions,
    MessageBatch,
    RangefeedRegistration,
    RowBatch,
    SinkRegistration,
    TableSchema,
    hookimpl,
)
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import Job
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.plugins.loading import PluginSource

__all__ = ["FLAGS", "EncoderRig", "Form", "NoOptions", "body_of", "pairs_of"]

FLAGS = tuple(field.name for field in dataclasses.fields(EnvelopeOptions) if field.name != "envelope")
"""The envelope options that add something to a message."""
_FILE_ENVELOPES = frozenset({"wrapped", "bare"})
_ORDER = ("wrapped", "bare", "row", "key_only", "enriched")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The source and the sinks have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One thing that an encoder can be asked for: an envelope with its options, as messages or as files."""

    output: str
    envelope: EnvelopeOptions
    scans_only: bool = False

    @property
    def name(self) -> str:
        return self.envelope.envelope

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(name for name in FLAGS if getattr(self.envelope, name))

    @property
    def has_row(self) -> bool:
        """Whether the value holds the row after the change."""
        return self.name != "key_only"

    def __str__(self) -> str:
        return f"envelope '{self.name}'{' with ' if self.flags else ''}{', '.join(self.flags)}, as {self.output}"


class _Known:
    """What is the same for all promises: the host, which forms are accepted, and their jobs."""

    def __init__(self, registration: EncoderRegistration) -> None:
        self.host = PluginHost([PluginSource.of(_plugin(registration), name="under-test")])
        self.forms: dict[tuple[str, ...], list[Form]] = {}
        self.jobs: dict[Form, Job] = {}
        self.accepted: dict[tuple[Form, tuple[str, ...]], list[Sample]] = {}


_known: dict[tuple[EncoderRegistration, str, tuple[str, ...]], _Known] = {}


class EncoderRig:
    """Builds everything through `resolve`, so options are really parsed; connects to nothing by itself."""

    def __init__(
        self, registration: EncoderRegistration, *, options: Mapping[str, Any], outputs: Iterable[str]
    ) -> None:
        self.registration = registration
        self.options = dict(options)
        self.outputs = tuple(output for output in ("messages", "files") if output in set(outputs))
        key = registration, repr(sorted(self.options.items())), self.outputs
        known = _known.get(key)
        if known is None:
            known = _known[key] = _Known(registration)
        self._host, self._forms, self._jobs = known.host, known.forms, known.jobs
        self._accepted = known.accepted

    def form(self, output: str, envelope: str = "wrapped", **flags: bool) -> Form:
        """Return what a job makes of this: some outputs and options switch more on."""
        wanted = EnvelopeOptions(envelope=envelope, **flags)
        made = self._job(output, wanted, self.options).envelope()
        return Form(output=output, envelope=made, scans_only=self.registration.scans_only)

    def forms(self, *flags: str, rows: bool = False, output: str | None = None) -> list[Form]:
        """Return every form with *flags* that the encoder does not refuse; with *rows* those that show rows."""
        if flags not in self._forms:
            self._forms[flags] = list(self._found(dict.fromkeys(flags, True)))
        return [
            form
            for form in self._forms[flags]
            if (form.has_row or not rows) and (output is None or form.output == output)
        ]

    def some(self, *flags: str, rows: bool = False, output: str | None = None) -> list[Form]:
        """Return the same as `forms`; skips the test when there is none, so that nothing seems proved."""
        found = self.forms(*flags, rows=rows, output=output)
        if not found:
            asked = f"{output or 'envelopes'}{' that show rows' if rows else ''}"
            asked += f" with {', '.join(flags)}" if flags else ""
            pytest.skip(f"encoder '{self.registration.name}' writes no {asked}, as it is proved here")
        return found

    def full_forms(self, *, output: str | None = None) -> list[Form]:
        """Return every envelope and output with all the options that it has a place for; skips the test likewise."""
        return [
            self.form(form.output, form.name, **{flag: True for flag in FLAGS if self._has_place(form, flag)})
            for form in self.some(output=output)
        ]

    def every_kind(self, form: Form, topic: str) -> TableSchema:
        """Return a table with a column of each kind, as far as `check` accepts them."""
        schema = table("every", EVERY_KIND)
        if self.refusal(form, schema, topic) is not None:
            columns = {
                name: type_
                for name, type_ in EVERY_KIND.items()
                if name == "id" or self.refusal(form, table("every", {"id": INT8, name: type_}), topic) is None
            }
            schema = table("every", columns)
        return schema

    def accepted(self, form: Form, samples: Iterable[Sample], topic: str) -> list[Sample]:
        """Return the columns that `check` accepts."""
        several = list(samples)
        place = form, tuple(sample.name for sample in several)
        if place not in self._accepted:
            self._accepted[place] = self._accepts(form, several, topic)
        return self._accepted[place]

    def _accepts(self, form: Form, several: list[Sample], topic: str) -> list[Sample]:
        schema = table("all", {"id": INT8} | {sample.name: sample.type for sample in several})
        if self.refusal(form, schema, topic) is None:
            return several
        return [
            sample
            for sample in several
            if self.refusal(form, table("all", {"id": INT8, sample.name: sample.type}), topic) is None
        ]

    def promised(self) -> list[tuple[str, str]]:
        """Return the envelopes of the registration with each output that can take them."""
        known = sorted(self.registration.envelopes, key=lambda name: (*_ORDER, name).index(name))
        return [
            (output, envelope)
            for output in self.outputs
            for envelope in known
            if output == "messages" or envelope in _FILE_ENVELOPES
        ]

    def job(self, form: Form, **options: Any) -> Job:
        """Return the job of a changefeed that asks for *form*. Raises: ConfigError."""
        if options:
            return self._job(form.output, form.envelope, {**self.options, **options})
        if form not in self._jobs:
            self._jobs[form] = self._job(form.output, form.envelope, self.options)
        return self._jobs[form]

    def encoder(self, form: Form, **options: Any) -> Encoder:
        """Return a new encoder; a format of scans gets scanned rows, whatever it is given. Raises: ConfigError."""
        return self.guarded(self.unguarded(form, **options))

    def unguarded(self, form: Form, **options: Any) -> Encoder:
        """Return a new encoder, and nothing but that. Raises: ConfigError."""
        return self.job(form, **options).open_encoder()

    def guarded(self, encoder: Encoder) -> Encoder:
        """Return *encoder*, such that it gets nothing but scanned rows if that is all that it can write."""
        return OfScans(encoder) if self.registration.scans_only else encoder

    def given(self, batch: RowBatch) -> RowBatch:
        """Return those rows of *batch* that the encoder is given."""
        return scanned(batch) if self.registration.scans_only else batch

    def require_changes(self) -> None:
        """Skip the test for a format of scans, in which rows are neither deleted nor resolved."""
        if self.registration.scans_only:
            pytest.skip(f"encoder '{self.registration.name}' is a format of scans: without deletes and resolved marks")

    def context(self, form: Form, **options: Any) -> EncoderContext:
        """Return what an encoder and its decoder are built from."""
        job = self.job(form, **options)
        return EncoderContext(
            changefeed=job.name, envelope=job.envelope(), options=job.encoder.parsed(), output=job.output
        )

    def decoder(self, form: Form) -> Decoder:
        """Return a new decoder; skips the test when the registration names none."""
        if not self.registration.decoder:
            pytest.skip(
                f"encoder '{self.registration.name}' registers no decoder, with which this promise is seen to be kept"
            )
        owner = f"decoder of encoder '{self.registration.name}'"
        cls = load_class(self.registration.decoder, owner=owner, base=Decoder)
        return cast(Decoder, cls(self.context(form)))

    def refusal(self, form: Form, schema: TableSchema, topic: str) -> ConfigError | None:
        """Return with what `check` refuses a table, None when it accepts it."""
        try:
            self.encoder(form).check([(schema, topic)])
        except ConfigError as error:
            return error
        return None

    def read(self, form: Form, batches: Sequence[RowBatch], topic: str) -> list[DecodedRow]:
        """Return what a consumer understands of *batches*, which have one schema."""
        encoder, schema = self.encoder(form), batches[0].schema
        if form.output == "files":
            return list(self.decoder(form).file(schema, body_of(encoder, batches, topic)))
        messages = [pair for batch in batches for pair in pairs_of(encoder.encode(batch, topic=topic))]
        return self.understood(form, schema, messages)

    def understood(
        self, form: Form, schema: TableSchema, messages: Iterable[tuple[bytes, bytes | None]]
    ) -> list[DecodedRow]:
        """Return what the decoder reads in *messages*, keys and values."""
        decoder = self.decoder(form)
        return [decoder.message(schema, key, value) for key, value in messages]

    def _has_place(self, form: Form, flag: str) -> bool:
        return any((other.output, other.name) == (form.output, form.name) for other in self.forms(flag))

    def _found(self, flags: Mapping[str, bool]) -> Iterator[Form]:
        for output, envelope in self.promised():
            try:
                form = self.form(output, envelope, **flags)
                self.encoder(form).check([])
            except ConfigError:  # no promise: which options an envelope has a place for is the encoder's own affair
                continue
            yield form

    def _job(self, output: str, envelope: EnvelopeOptions, options: Mapping[str, Any]) -> Job:
        flags: dict[str, Any] = {name: True for name in FLAGS if getattr(envelope, name)}
        if self.registration.scans_only:
            flags["initial_scan"] = "only"
        changefeed = Changefeed(
            name="conformance",
            source="nothing://",
            tables=("public.orders",),
            sink=f"{output}://nowhere",
            format=self.registration.name,
            options={"envelope": envelope.envelope, **flags, **options},
        )
        return resolve(changefeed, self._host)


def pairs_of(batch: MessageBatch) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of messages."""
    return list(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True))


def body_of(encoder: Encoder, batches: Iterable[RowBatch], topic: str) -> bytes:
    """Return the body of a file with *batches*."""
    body = encoder.open_body(topic)
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])


def _plugin(encoder: EncoderRegistration) -> SimpleNamespace:
    """Return a plugin with *encoder*, a source, and a sink for each kind of output, none of which is ever opened."""
    common: dict[str, Any] = {
        "target": f"{__name__}:Nothing",
        "options": f"{__name__}:NoOptions",
        "summary": "Stands for any other",
    }

    @hookimpl
    def cdc_register_encoders() -> list[EncoderRegistration]:
        return [encoder]

    @hookimpl
    def cdc_register_sinks() -> list[SinkRegistration]:
        files = SinkRegistration(
            name="files",
            schemes=("files",),
            output="files",
            forced=frozenset({"key_in_value"}),
            envelopes=_FILE_ENVELOPES,
            **common,
        )
        return [SinkRegistration(name="messages", schemes=("messages",), output="messages", **common), files]

    @hookimpl
    def cdc_register_rangefeeds() -> list[RangefeedRegistration]:
        return [RangefeedRegistration(name="nothing", schemes=("nothing",), **common)]

    return SimpleNamespace(
        cdc_register_encoders=cdc_register_encoders,
        cdc_register_sinks=cdc_register_sinks,
        cdc_register_rangefeeds=cdc_register_rangefeeds,
    )
