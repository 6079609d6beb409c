"""Opens the encoder under test as a changefeed does, in every form that it can write, and reads what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from cdc_conformance.encoders.comparison import ScannedRowsEncoder, scanned
from cdc_conformance.encoders.form import Form, encoder_context, open_encoder, plugin_host, resolved_changefeed
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.promises import does_not_apply
from cdc_conformance.rows import EVERY_KIND, INT8, table
from cdc_core import (
    ConfigError,
    DecodedRow,
    Decoder,
    DeleteForm,
    Encoder,
    EncoderContext,
    EncoderRegistration,
    Envelope,
    MessageBatch,
    RowBatch,
    TableSchema,
)
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope import ENVELOPE_OPTIONS, ENVELOPES
from cdc_core.envelope_shapes import SHAPES
from cdc_core.plugins.classes import load_class

_FILE_ENVELOPES = frozenset(
    name for name, shape in SHAPES.items() if shape.delete is not DeleteForm.TOMBSTONE and not shape.events
)
_PROPERTIES = ((), ("source",), ("schema", "source"))
"""What is added to enriched messages."""


class _Known:
    """What all promises about an encoder share: the plugin host, the accepted forms, and their changefeeds."""

    def __init__(self, registration: EncoderRegistration) -> None:
        self.host = plugin_host(registration, file_envelopes=_FILE_ENVELOPES)
        self.forms: dict[tuple[str, ...], list[Form]] = {}
        self.feeds: dict[Form, ResolvedChangefeed] = {}
        self.accepted: dict[tuple[Form, tuple[str, ...]], list[Sample]] = {}


_known: dict[tuple[EncoderRegistration, str, tuple[str, ...]], _Known] = {}


class EncoderRig:
    """Opens encoders and decoders. Their options are really parsed. Connects to nothing itself."""

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
        self._host, self._forms, self._feeds = known.host, known.forms, known.feeds
        self._accepted = known.accepted

    def form(self, output: str, envelope: str = "wrapped", *, properties: tuple[str, ...] = (), **flags: bool) -> Form:
        """Return the form of a changefeed with these options. Some outputs switch on further options."""
        wanted = Envelope(name=envelope, enriched_properties=properties, **flags)
        resolved = self._feed(output, wanted, self.options).envelope()
        return Form(output=output, envelope=resolved, scans_only=self.registration.scans_only)

    def forms(self, *flags: str, rows: bool = False, output: str | None = None) -> list[Form]:
        """Return every form with *flags* that the encoder accepts; with *rows*, only those that contain rows."""
        if flags not in self._forms:
            self._forms[flags] = list(self._found(dict.fromkeys(flags, True)))
        return [
            form
            for form in self._forms[flags]
            if (form.has_row or not rows) and (output is None or form.output == output)
        ]

    def some(self, *flags: str, rows: bool = False, output: str | None = None) -> list[Form]:
        """Return the same as `forms`, and skip the test when there is none. Raises: ConfigError when no form works."""
        found = self.forms(*flags, rows=rows, output=output)
        if not found:
            self._check_that_one_works()
            wanted = f"{output or 'form'}{' with rows' if rows else ''}{' and ' if rows and flags else ''}"
            wanted += f"{'' if rows or not flags else ' with '}{', '.join(flags)}"
            does_not_apply(f"encoder '{self.registration.name}' writes no {wanted} in this test class")
        return found

    def one_of_each_output(self, *, rows: bool = False) -> list[Form]:
        """Return the first form of each output; skip the test when there is none."""
        first: dict[str, Form] = {}
        for form in self.some(rows=rows):
            first.setdefault(form.output, form)
        return list(first.values())

    def full_forms(self, *, output: str | None = None) -> list[Form]:
        """Return every envelope and output with all options that it accepts; skip the test when there is none."""
        return [
            self.form(
                form.output,
                form.name,
                properties=form.envelope.enriched_properties,
                **{flag: True for flag in ENVELOPE_OPTIONS if self._accepts(form, flag)},
            )
            for form in self.some(output=output)
        ]

    def every_kind(self, form: Form, topic: str) -> TableSchema:
        """Return a table with a column of each kind that `check` accepts."""
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
        """Return the samples whose columns `check` accepts."""
        several = list(samples)
        place = form, tuple(sample.name for sample in several)
        if place not in self._accepted:
            self._accepted[place] = self._accepted_columns(form, several, topic)
        return self._accepted[place]

    def promised(self) -> list[tuple[str, str]]:
        """Return the outputs and envelopes that the registration offers together."""
        envelopes = [name for name in ENVELOPES if name in self.registration.envelopes]
        envelopes += sorted(self.registration.envelopes - set(envelopes))
        return [
            (output, envelope)
            for output in self.outputs
            for envelope in envelopes
            if output == "messages" or envelope in _FILE_ENVELOPES
        ]

    def feed(self, form: Form, **options: Any) -> ResolvedChangefeed:
        """Return a changefeed that asks for *form*. Raises: ConfigError."""
        if options:
            return self._feed(form.output, form.envelope, {**self.options, **options})
        if form not in self._feeds:
            self._feeds[form] = self._feed(form.output, form.envelope, self.options)
        return self._feeds[form]

    def encoder(self, form: Form, **options: Any) -> Encoder:
        """Return a new encoder. It gets only scanned rows when the format is for scans only. Raises: ConfigError."""
        return self.guarded(self.unguarded(form, **options))

    def unguarded(self, form: Form, **options: Any) -> Encoder:
        """Return a new encoder that gets all rows. Raises: ConfigError."""
        return open_encoder(self.feed(form, **options))

    def guarded(self, encoder: Encoder) -> Encoder:
        """Return *encoder*, restricted to scanned rows when the format is for scans only."""
        return ScannedRowsEncoder(encoder) if self.registration.scans_only else encoder

    def given(self, batch: RowBatch) -> RowBatch:
        """Return the rows of *batch* that the encoder gets."""
        return scanned(batch) if self.registration.scans_only else batch

    def context(self, form: Form, **options: Any) -> EncoderContext:
        """Return the context of an encoder and its decoder."""
        return encoder_context(self.feed(form, **options))

    def decoder(self, form: Form, **options: Any) -> Decoder:
        """Return a new decoder."""
        owner = f"decoder of encoder '{self.registration.name}'"
        cls = load_class(self.registration.decoder, owner=owner, base=Decoder)
        return cast(Decoder, cls(self.context(form, **options)))

    def refusal(self, form: Form, schema: TableSchema, topic: str) -> ConfigError | None:
        """Return the error with which `check` refuses a table, None when it accepts the table."""
        try:
            self.encoder(form).check([(schema, topic)])
        except ConfigError as error:
            return error
        return None

    def read(
        self, form: Form, batches: Sequence[RowBatch], topic: str, *, encoder: Encoder | None = None
    ) -> list[DecodedRow]:
        """Return the decoded rows of *batches*, which have one schema, as *encoder* or a new one encodes them."""
        encoder, schema = encoder or self.encoder(form), batches[0].schema
        if form.output == "files":
            return list(self.decoder(form).file(schema, body_of(encoder, batches, topic)))
        messages = [pair for batch in batches for pair in pairs_of(encoder.encode(batch, topic=topic))]
        return self.decoded(form, schema, messages)

    def decoded(
        self, form: Form, schema: TableSchema, messages: Iterable[tuple[bytes, bytes | None]]
    ) -> list[DecodedRow]:
        """Return the decoded rows of *messages*, keys and values."""
        decoder = self.decoder(form)
        return [decoder.message(schema, key, value) for key, value in messages]

    def _accepts(self, form: Form, flag: str) -> bool:
        return any(
            (other.output, other.name, other.envelope.enriched_properties)
            == (form.output, form.name, form.envelope.enriched_properties)
            for other in self.forms(flag)
        )

    def _accepted_columns(self, form: Form, several: list[Sample], topic: str) -> list[Sample]:
        schema = table("all", {"id": INT8} | {sample.name: sample.type for sample in several})
        if self.refusal(form, schema, topic) is None:
            return several
        return [
            sample
            for sample in several
            if self.refusal(form, table("all", {"id": INT8, sample.name: sample.type}), topic) is None
        ]

    def _found(self, flags: Mapping[str, bool]) -> Iterator[Form]:
        for output, envelope in self.promised():
            for properties in _PROPERTIES if Envelope(name=envelope).enriched else ((),):
                try:
                    form = self.form(output, envelope, properties=properties, **flags)
                    self.encoder(form).check([])
                except ConfigError:  # An encoder may refuse options.
                    continue
                yield form

    def _check_that_one_works(self) -> None:
        """Raise the error of the first form when no form works, such as that of wrong options."""
        if not self.forms():
            for output, envelope in self.promised():
                self.encoder(self.form(output, envelope)).check([])

    def _feed(self, output: str, envelope: Envelope, options: Mapping[str, Any]) -> ResolvedChangefeed:
        return resolved_changefeed(self.registration, self._host, output=output, envelope=envelope, options=options)


def pairs_of(batch: MessageBatch) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of messages."""
    return list(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True))


def body_of(encoder: Encoder, batches: Iterable[RowBatch], topic: str) -> bytes:
    """Return the body of a file with *batches*."""
    body = encoder.open_body(topic)
    return b"".join([*(bytes(body.write(batch)) for batch in batches), bytes(body.finish())])
