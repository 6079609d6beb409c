"""Promises about options, secrets, `check`, pickling and imports, and about memory, threads and descriptors."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_conformance.encoders.form import FILES, Form
from cdc_conformance.encoders.messages import history, written
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.processes import assert_light, assert_works_alone
from cdc_conformance.promises import applies_if, does_not_apply
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.side_effects import Resources as Opened
from cdc_conformance.side_effects import watched
from cdc_core import CdcError, Decoder, Encoder, EncoderContext, RowBatch
from cdc_core.options import describe
from cdc_core.plugins.classes import load_class

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_SECRET = "sesame"
_MULTIPLE, _SLACK_BYTES = 16, 48 * 1024 * 1024
_KEPT_BYTES = 160 * 1024


class Packaging:
    """What happens before the first row."""

    def test_the_constructor_has_no_side_effects(self, rig: EncoderRig) -> None:
        """Creating an encoder or decoder opens no connection, writes no file, and starts no process or thread.

        `cdc check`, the driver and every worker create them. Connect when rows arrive.
        """
        for form in rig.some():
            cls, context = rig.feed(form).encoder.load("encoder", Encoder), rig.context(form)
            parts: dict[str, Callable[[EncoderContext], object]] = {"encoder": cls}
            if rig.registration.decoder:
                parts["decoder"] = load_class(rig.registration.decoder, owner="decoder", base=Decoder)
            for part, construct in parts.items():
                with watched() as effects:
                    construct(context)
                assert str(effects) == "nothing", f"{form}: the {part}'s constructor {effects}"

    def test_a_check_changes_nothing(self, rig: EncoderRig, topic: str) -> None:
        """`check` does not affect how rows are encoded. It may be called at any time and any number of times, or never.

        It writes no file and starts no process. It may send requests to a service.
        """
        for form in rig.full_forms():
            batch = history(_ORDERS)
            plain, checked = rig.encoder(form), rig.encoder(form)
            with watched() as effects:
                checked.check([(_ORDERS, topic)])
            forbidden = effects.changed + effects.started
            assert not forbidden, f"{form}: check must write and start nothing, but: {', '.join(forbidden)}"
            checked.check([])
            checked.check([(table("others", {"id": INT8}), f"{topic}_others"), (_ORDERS, topic)])
            same = written(checked, batch, topic, form) == written(plain, batch, topic, form)
            assert same, f"{form}: the same rows have different bytes after a check"

    def test_a_check_refuses_a_column_by_name(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """`check` accepts a table with any kind of column, or raises a ConfigError that names table and column.

        Users read this message before a run, and must know which column to remove. The refused column is the second of
        three.
        """
        for form in rig.one_of_each_output():
            several = list(samples)
            if len(rig.accepted(form, several, topic)) == len(several):
                continue
            for sample in several:
                schema = table("checked", {"id": INT8, "peculiar": sample.type, "last": TEXT})
                error = rig.refusal(form, schema, f"{topic}_{sample.name}")
                if error is not None:
                    for what, word in (("table", str(schema.name)), ("column", "peculiar")):
                        assert word in str(error), (
                            f"{form}: check refuses a column of type {sample.type.source} without naming the {what} "
                            f"'{word}': {error}"
                        )

    @applies_if(FILES)
    def test_the_file_extension_begins_with_a_dot(self, rig: EncoderRig) -> None:
        """`file_extension` is the end of a file's name, such as `.ndjson`, without slashes or blanks."""
        for form in rig.some(output="files"):
            extension = rig.encoder(form).file_extension
            assert extension.startswith("."), f"{form}: file_extension {extension!r} does not begin with a dot"
            fits = len(extension) > 1 and not set("/\\ ") & set(extension)
            assert fits, f"{form}: file_extension {extension!r} is not valid at the end of a file name"

    def test_options_are_documented(self, rig: EncoderRig) -> None:
        """Each option has a `doc` of full sentences, and a name that is an identifier.

        The documentation's option tables are generated from `doc`.
        """
        cls = _options_class(rig)
        for row in describe(cls):
            assert row.doc.strip().endswith((".", "!", "?")), (
                f"option '{row.name}' of {cls.__name__} has the doc {row.doc!r}; declare it with a full sentence: "
                "option(…, doc='…')"
            )
            assert row.name.isidentifier(), f"the name of option {row.name!r} of {cls.__name__} is not an identifier"

    def test_secrets_are_not_shown(self, rig: EncoderRig, secret_options: Mapping[str, Any], topic: str) -> None:
        """No value of a secret option is in an error, or in `repr` of the encoder, the context or the options.

        This includes passwords in URLs. The values of the test name an unreachable service, whose error must not show
        them either.
        """
        names = [row.name for row in describe(_options_class(rig)) if row.secret]
        values = dict.fromkeys(names, f"http://alice:{_SECRET}%2F@127.0.0.1:9") | dict(secret_options)
        if not values:
            does_not_apply("the encoder has no secret option")
        for form in rig.some():
            texts = []
            try:
                feed = rig.feed(form, **values)
                context = rig.context(form, **values)
                encoder = rig.encoder(form, **values)
                texts += [repr(feed), repr(context), str(context.options), repr(encoder), str(encoder)]
                encoder.check([(_ORDERS, topic)])
                written(encoder, history(_ORDERS), topic, form)
            except CdcError as error:
                texts += [str(error), repr(error)]
            for text in texts:
                assert _SECRET not in text, f"{form}: a secret is shown in {text}"

    def test_contexts_can_be_pickled(self, rig: EncoderRig, topic: str) -> None:
        """An encoder that is created from a pickled and unpickled context writes the same bytes."""
        for form in rig.some():
            context = rig.context(form)
            copy = pickle.loads(pickle.dumps(context))
            cls = rig.feed(form).encoder.load("encoder", Encoder)
            first, second = (written(rig.guarded(cls(each)), history(_ORDERS), topic, form) for each in (context, copy))
            assert first == second, f"{form}: an encoder created from a pickled context writes different bytes"

    def test_registration_and_options_import_no_client_library(self, rig: EncoderRig) -> None:
        """Hooks and options import only their own package, the standard library, and what `cdc` itself imports.

        Every `cdc` command and every driver loads their modules, with any encoder. Import libraries in the modules of
        the encoder and the decoder.
        """
        assert_light("encoder", rig.registration)

    def test_the_encoder_imports_neither_pytest_nor_pyspark(self, rig: EncoderRig) -> None:
        """Encoder and decoder can be imported without a test framework and without Spark."""
        assert_works_alone(rig.registration.encoder, rig.registration.decoder)


def _options_class(rig: EncoderRig) -> type[Any]:
    (form, *_) = rig.some()
    return rig.feed(form).encoder.load_options()


class Resources:
    """An encoder lives as long as its worker."""

    def test_memory_is_a_multiple_of_the_batch(self, rig: EncoderRig, topic: str) -> None:
        """Encoding takes at most 16 times the memory of the batch, plus 48 MiB.

        Look for data that is copied for each row.
        """
        batch = _large(300, width=4000)
        most = _MULTIPLE * batch.nbytes + _SLACK_BYTES
        for form in rig.one_of_each_output(rows=True):
            encoder = rig.encoder(form)
            written(encoder, batch.slice(0, 10), topic, form)
            taken = _peak_of(partial(written, encoder, batch, topic, form))
            assert taken <= most, (
                f"{form}: encoding {batch.nbytes:,} bytes took {taken:,} bytes of memory, more than {most:,}"
            )

    def test_encoded_batches_are_released(self, rig: EncoderRig, topic: str) -> None:
        """The encoder releases the memory of a batch with its messages. An encoder encodes millions of batches.

        Look for caches by key or value, and for results that are attributes of the encoder.
        """
        for form in rig.one_of_each_output(rows=True):
            kept = _kept_by(partial(_encode_large, rig.encoder(form), topic, form))
            assert kept <= _KEPT_BYTES, f"{form}: {kept:,} bytes of memory were not released after eight batches"

    def test_no_thread_or_descriptor_leaks(self, rig: EncoderRig, topic: str) -> None:
        """Encoders have no `close`, so they share or close what they open.

        The first encoder of a process may open what all encoders share, such as a connection. Ten more must leave
        nothing open.
        """
        for form in rig.one_of_each_output(rows=True):

            def use(form: Form = form) -> None:
                encoder = rig.encoder(form)
                encoder.check([(_ORDERS, topic)])
                written(encoder, history(_ORDERS), topic, form)
                if not form.scans_only:
                    encoder.encode_resolved(topic, history(_ORDERS).latest())

            use()
            before = Opened.now()
            for _ in range(10):
                use()
            left = before.more()
            assert not left, f"{form}: ten encoders left this open: {left}"


def _large(count: int, first: int = 0, *, width: int = 500) -> RowBatch:
    return rows(_ORDERS, [Change({"id": n, "note": f"{n:09}" + "x" * width}) for n in range(first, first + count)])


def _encode_large(encoder: Encoder, topic: str, form: Form, first: int) -> None:
    written(encoder, _large(30, first, width=1500), topic, form)


def _peak_of(work: Callable[[], object]) -> int:
    """Return the peak growth of the process during *work*, in bytes, including the result."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("this system does not report the peak memory of a process")
    reset.write_text("5")
    before = _status(status, "VmRSS")
    result = work()
    grown = _status(status, "VmHWM") - before
    del result
    return grown


def _status(path: Path, name: str) -> int:
    (line,) = (line for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _kept_by(work: Callable[[int], object]) -> int:
    """Return the bytes that the last eight of ten batches of different rows did not release."""
    for n in range(2):
        work(n * 1000)
    tracemalloc.start()
    try:
        before = _allocated()
        for n in range(2, 10):
            work(n * 1000)
        if _allocated() - before > _KEPT_BYTES:  # The garbage collector may release it.
            gc.collect()
        return _allocated() - before
    finally:
        tracemalloc.stop()


def _allocated() -> int:
    return int(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())
