"""Options and their secrets, what passes from process to process, and what the modules of a plugin import."""

from __future__ import annotations

import contextlib
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from cdc_conformance.processes import assert_light, assert_works_alone
from cdc_conformance.promises import requires
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import AT, ORDERS, SinkRig, versions
from cdc_core import CdcError, Destination, OptionError, ResolvedSink, Sink
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.options import describe, option_names

_NONSENSE = ("no-such-value", "-1", "0", "", "99999999999999999999", "\x00")
SecretOptions = Sequence[Mapping[str, str]]
SECRET = "hunter2-Zm9vYmFy"


class Options:
    """Promises about the options class."""

    def test_a_misspelt_option_is_refused_with_a_hint(self, fresh: SinkRig) -> None:
        """An unknown URI parameter raises an OptionError that suggests the right name.

        If a parameter were ignored, the user would believe that a default had been changed.
        """
        known = option_names(fresh.options_class())
        error = failure_of(lambda: fresh.feed(parameters={"zz-no-such-option": "1"}))
        assert isinstance(error, OptionError), f"an unknown option must raise OptionError, not {error!r}"
        for name in known:
            typo = _misspelt(name)
            error = failure_of(partial(fresh.feed, parameters={typo: "1"}))
            assert isinstance(error, OptionError), f"'{typo}' for '{name}' must raise OptionError, not {error!r}"
            assert "did you mean" in str(error), f"the error for '{typo}' must suggest '{name}', but it says: {error}"

    def test_every_option_is_documented(self, fresh: SinkRig) -> None:
        """Each option has a text `option(…, doc=…)`, which tables, `cdc` and error messages show."""
        bare = [row.name for row in describe(fresh.options_class()) if not row.doc.strip()]
        assert not bare, f"these options have no doc: {bare}"

    def test_any_value_of_an_option_is_accepted_or_refused(self, fresh: SinkRig) -> None:
        """A wrong type, nonsense, zero, a negative, huge or empty value is accepted or raises OptionError, at once.

        Declare options with types that `cdc_core.options` parses, and raise ValueError in `__post_init__`: it becomes
        the OptionError that names the option. Users cannot understand any other exception.
        """
        for name in option_names(fresh.options_class()):
            for value in _NONSENSE:
                error = failure_of(partial(fresh.feed, parameters={name: value}))
                assert error is None or isinstance(error, OptionError), (
                    f"{name}={value!r} must be accepted or raise OptionError, not {error!r}"
                )

    def test_options_survive_pickle(self, fresh: SinkRig) -> None:
        """Parsed options and the changefeed that holds them are pickled for other processes, and are equal there."""
        fresh.watch(ORDERS)
        options = Parts(fresh.feed()).sink_context().options
        error = failure_of(lambda: pickle.dumps(options))
        assert error is None, f"options must be picklable, but pickle raised {error!r}"
        assert pickle.loads(pickle.dumps(options)) == options, (
            "options must be equal after pickle: make the class a dataclass"
        )
        sink = Parts(pickle.loads(pickle.dumps(fresh.feed()))).open_sink()
        assert type(sink) is type(fresh.open_sink()), "the sink's class must be importable by its name from its module"


def _misspelt(name: str) -> str:
    """Return *name* with two neighbouring letters swapped."""
    for place in range(len(name) // 2, len(name) - 1):
        if name[place] != name[place + 1]:
            return name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return name + "x"


class Packaging:
    """Promises about imports."""

    def test_registration_and_options_import_no_client_library(self, fresh: SinkRig) -> None:
        """The modules of the hooks and of the options import only the core, the standard library and each other.

        Every `cdc` command and every driver loads them, whatever sink is used there. Import clients in the modules of
        the sink's parts, which are loaded by name when they are needed.
        """
        assert_light("sink", fresh.registration)

    def test_the_sink_imports_neither_pytest_nor_pyspark(self, fresh: SinkRig) -> None:
        """Sink, resolved sink and destination work without a test framework installed and do not use Spark."""
        registration = fresh.registration
        assert_works_alone(registration.sink, registration.resolved_sink, registration.destination)


class Secrecy:
    """Promises about secrets: the password of a URI, and every option declared `secret=True`."""

    def test_secrets_do_not_show_in_repr(self, fresh: SinkRig, secret_options: SecretOptions) -> None:
        """`repr` and `str` of changefeed, sink parts, context and options show no secret: they end up in logs."""
        fresh.watch(ORDERS)
        for options in secret_options:
            opened: list[Sink] = []
            error = failure_of(lambda: opened.append(Parts(fresh.feed(parameters=_filled(options))).open_sink()))  # noqa: B023
            assert error is None, (
                f"no sink opens with the secrets in {sorted(options)}; add the other options that it needs to the"
                f" fixture secret_options: {error}"
            )
            failure_of(opened[0].close)
        for feed in feeds_with_secrets(fresh, secret_options):
            with contextlib.suppress(CdcError):
                parts = _open_all(feed)
                for thing in (feed, *parts, parts[0].context, parts[0].context.options):
                    shown = f"{thing!r} {thing}"
                    assert SECRET not in shown, f"a secret shows in repr or str of {type(thing).__name__}: {shown}"

    @requires("unreachable", "there must be something to complain about")
    def test_secrets_do_not_show_in_errors(
        self, fresh: SinkRig, unreachable_uri: str, secret_options: SecretOptions
    ) -> None:
        """No error about options, and none of `check` and `prepare`, shows a secret. Neither does its cause."""
        fresh.watch(ORDERS)
        for make in _attempts(fresh, unreachable_uri, secret_options):
            opened: list[Destination] = []
            calls = [
                lambda: opened.append(Parts(make()).open_destination()),  # noqa: B023 (called at once)
                lambda: opened[0].check(),  # noqa: B023
                lambda: opened[0].prepare(),  # noqa: B023
            ]
            for call in calls:
                error: BaseException | None = failure_of(call)
                while error is not None:
                    assert SECRET not in str(error), f"a secret shows in {type(error).__name__}: {error}"
                    error = error.__cause__ or error.__context__
            for destination in opened:
                failure_of(destination.close)

    def test_secrets_are_not_logged(
        self, fresh: SinkRig, secret_options: SecretOptions, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No log record between construction and `close` holds a secret, not even at level DEBUG."""
        fresh.watch(ORDERS)
        with caplog.at_level(logging.DEBUG):
            for feed in feeds_with_secrets(fresh, secret_options):
                parts = None
                with contextlib.suppress(CdcError):
                    parts = _open_all(feed)
                    sink, resolved_sink, destination = parts
                    destination.check()
                    destination.prepare()
                    fresh.write_with(sink, versions([1]))
                    resolved_sink.emit_resolved(AT)
                for part in parts or ():
                    failure_of(part.close)
        found = [record for record in caplog.records if SECRET in f"{record.getMessage()} {record.exc_text}"]
        assert not found, f"a secret shows in a log record of {found[0].name}: {found[0].getMessage()}"


def feeds_with_secrets(rig: SinkRig, secret_options: SecretOptions) -> Iterator[ResolvedChangefeed]:
    """Yield the changefeed with each secret that it accepts."""
    for make in _attempts(rig, rig.uri, secret_options):
        with contextlib.suppress(CdcError):
            yield make()


def _attempts(rig: SinkRig, uri: str, secret_options: SecretOptions) -> Iterator[Callable[[], ResolvedChangefeed]]:
    """Yield a function that makes the changefeed with a password in its URI, and one for each set of secret options."""
    scheme, _, rest = uri.partition("://")
    if "@" not in rest.partition("/")[0]:
        yield partial(rig.feed, uri=f"{scheme}://someone:{SECRET}@{rest}")
    for options in secret_options:
        yield partial(rig.feed, uri=uri, parameters=_filled(options))


def _open_all(feed: ResolvedChangefeed) -> tuple[Sink, ResolvedSink, Destination]:
    return Parts(feed).open_sink(), Parts(feed).open_resolved_sink(), Parts(feed).open_destination()


def _filled(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value.replace("{secret}", SECRET) for name, value in options.items()}
