"""Passwords are seen by nobody but the destination."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import AT, ORDERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import CdcError, Sink
from cdc_core.config.resolved import Job

__all__ = ["SECRET", "Secrecy", "SecretOptions", "jobs"]

SecretOptions = Sequence[Mapping[str, str]]

SECRET = "hunter2-Zm9vYmFy"


class Secrecy:
    """Promises about secrets: the password of a URI, and every option declared `secret=True`."""

    def test_secrets_do_not_show_in_repr(self, rig: SinkRig, secret_options: SecretOptions) -> None:
        """`repr` and `str` of job, sink, context and options show no secret: they end up in logs and Spark's pages."""
        rig.watch(ORDERS)
        for options in secret_options:
            sinks: list[Sink] = []
            refused = failure_of(lambda: sinks.append(rig.job(parameters=_filled(options)).open_sink()))  # noqa: B023
            assert refused is None, (
                f"no sink opens with the secrets in {sorted(options)}; let the fixture secret_options"
                f" give what one needs beside them: {refused}"
            )
            failure_of(sinks[0].close)
        for job in jobs(rig, rig.uri, secret_options):
            with contextlib.suppress(CdcError):
                sink = job.open_sink()
                for thing in (job, sink, sink.context, sink.context.options):
                    shown = f"{thing!r} {thing}"
                    assert SECRET not in shown, f"a secret shows in repr or str of {type(thing).__name__}: {shown}"

    @requires("unreachable", "there must be something to complain of")
    def test_secrets_do_not_show_in_errors(
        self, rig: SinkRig, unreachable_uri: str, secret_options: SecretOptions
    ) -> None:
        """What is raised over options, or by `check` and `prepare` in vain, names no secret, nor do its causes."""
        rig.watch(ORDERS)
        for make in _attempts(rig, unreachable_uri, secret_options):
            sinks: list[Sink] = []
            calls = [
                lambda: sinks.append(make().open_sink()),  # noqa: B023 (called at once)
                lambda: [sink.check() for sink in sinks],  # noqa: B023
                lambda: [sink.prepare() for sink in sinks],  # noqa: B023
            ]
            for call in calls:
                error: BaseException | None = failure_of(call)
                while error is not None:
                    assert SECRET not in str(error), f"a secret shows in {type(error).__name__}: {error}"
                    error = error.__cause__ or error.__context__
            for sink in sinks:
                failure_of(sink.close)

    def test_secrets_are_not_logged(
        self, rig: SinkRig, secret_options: SecretOptions, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No log record of a sink's life holds a secret, not even at DEBUG."""
        rig.watch(ORDERS)
        with caplog.at_level(logging.DEBUG):
            for job in jobs(rig, rig.uri, secret_options):
                sink = None
                with contextlib.suppress(CdcError):
                    sink = job.open_sink()
                    sink.check()
                    sink.prepare()
                    rig.write_to(sink, versions([1]))
                    sink.emit_resolved(AT)
                if sink is not None:
                    failure_of(sink.close)
        found = [record for record in caplog.records if SECRET in f"{record.getMessage()} {record.exc_text}"]
        assert not found, f"a secret shows in a log record of {found[0].name}: {found[0].getMessage()}"


def jobs(rig: SinkRig, uri: str, secret_options: SecretOptions) -> Iterator[Job]:
    """Yield the changefeed with each secret that makes one."""
    for make in _attempts(rig, uri, secret_options):
        with contextlib.suppress(CdcError):
            yield make()


def _attempts(rig: SinkRig, uri: str, secret_options: SecretOptions) -> Iterator[Callable[[], Job]]:
    """Yield what makes the changefeed with a password in its URI, and with each set of secret options."""
    scheme, _, rest = uri.partition("://")
    if "@" not in rest.partition("/")[0]:
        yield partial(rig.job, uri=f"{scheme}://someone:{SECRET}@{rest}")
    for options in secret_options:
        yield partial(rig.job, uri=uri, parameters=_filled(options))


def _filled(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value.replace("{secret}", SECRET) for name, value in options.items()}
