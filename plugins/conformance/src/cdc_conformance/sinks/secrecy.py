"""Passwords are shown to nobody but the destination."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_core import CdcError, Destination, ResolvedSink, Sink
from cdc_core.config.resolved import ResolvedChangefeed

__all__ = ["SECRET", "Secrecy", "SecretOptions", "feeds_with_secrets"]

SecretOptions = Sequence[Mapping[str, str]]

SECRET = "hunter2-Zm9vYmFy"


class Secrecy:
    """Promises about secrets: the password of a URI, and every option declared `secret=True`."""

    def test_secrets_do_not_show_in_repr(self, rig: SinkRig, secret_options: SecretOptions) -> None:
        """`repr` and `str` of changefeed, sink parts, context and options show no secret: they end up in logs."""
        rig.watch(ORDERS)
        for options in secret_options:
            opened: list[Sink] = []
            error = failure_of(lambda: opened.append(rig.feed(parameters=_filled(options)).open_sink()))  # noqa: B023
            assert error is None, (
                f"no sink opens with the secrets in {sorted(options)}; add the other options that it needs to the"
                f" fixture secret_options: {error}"
            )
            failure_of(opened[0].close)
        for feed in feeds_with_secrets(rig, secret_options):
            with contextlib.suppress(CdcError):
                parts = _open_all(feed)
                for thing in (feed, *parts, parts[0].context, parts[0].context.options):
                    shown = f"{thing!r} {thing}"
                    assert SECRET not in shown, f"a secret shows in repr or str of {type(thing).__name__}: {shown}"

    @requires("unreachable", "there must be something to complain about")
    def test_secrets_do_not_show_in_errors(
        self, rig: SinkRig, unreachable_uri: str, secret_options: SecretOptions
    ) -> None:
        """No error about options, and none of `check` and `prepare`, shows a secret. Neither does its cause."""
        rig.watch(ORDERS)
        for make in _attempts(rig, unreachable_uri, secret_options):
            opened: list[Destination] = []
            calls = [
                lambda: opened.append(make().open_destination()),  # noqa: B023 (called at once)
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
        self, rig: SinkRig, secret_options: SecretOptions, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No log record between construction and `close` holds a secret, not even at level DEBUG."""
        rig.watch(ORDERS)
        with caplog.at_level(logging.DEBUG):
            for feed in feeds_with_secrets(rig, secret_options):
                parts = None
                with contextlib.suppress(CdcError):
                    parts = _open_all(feed)
                    sink, resolved_sink, destination = parts
                    destination.check()
                    destination.prepare()
                    rig.write_with(sink, versions([1]))
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
    return feed.open_sink(), feed.open_resolved_sink(), feed.open_destination()


def _filled(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value.replace("{secret}", SECRET) for name, value in options.items()}
