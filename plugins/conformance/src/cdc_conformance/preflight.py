"""Whether a suite can begin at all: one sentence in place of as many failures as there are promises."""

from __future__ import annotations

import secrets
from typing import cast

from cdc_conformance.given import Given
from cdc_conformance.rangefeeds.jobs import job_of
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS
from cdc_core.config.changefeed import ChangefeedOptions
from cdc_core.errors import CdcError, ConfigError
from cdc_core.options import option_names, parse_options
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import RangefeedRegistration, Registration, SinkRegistration
from cdc_core.source_writer import SourceWriter, SourceWriterContext

__all__ = ["try_out"]


def try_out(given: Given, host: PluginHost) -> None:
    """Return when the component says itself that it can work with what was given. Creates nothing that stays.

    Raises: ConfigError with what the component says.
    """
    registration = given.registration(host)
    try:
        if given.kind == "sink":
            _sink(given, cast(SinkRegistration, registration))
        elif given.kind == "rangefeed":
            _rangefeed(given, cast(RangefeedRegistration, registration))
        else:
            _parse_options(given, registration)
    except ConfigError:
        raise
    except CdcError as error:
        raise ConfigError(f"{given.kind} '{given.name}' cannot be used there: {error}") from error
    except Exception:  # a fault of the component, which the promises that it breaks show in full
        return


def _sink(given: Given, registration: SinkRegistration) -> None:
    place = given.place()
    rig = SinkRig(
        registration, uri=place.uri, format=given.format or "json", options=dict(place.options), read_back=None
    )
    with rig.opened() as sink:
        sink.check()
    rig.job().open_encoder().check([(ORDERS, ORDERS.name.table)])


def _rangefeed(given: Given, registration: RangefeedRegistration) -> None:
    place, table = given.place(), f"cdc_try_{secrets.token_hex(4)}"
    job = job_of(registration, uri=place.uri, tables=(table,), options=place.options)
    if not registration.writer:
        return  # the suite says that
    owner = f"writer of {job.rangefeed.owner}"
    cls = load_class(registration.writer, owner=owner, base=SourceWriter, install_hint=registration.install_hint)
    writer: SourceWriter = cls(SourceWriterContext(uri=place.uri, options=job.rangefeed.parsed()))
    try:
        try:
            writer.create_table(table)
        except Exception as error:  # a writer may raise what its client raises
            said = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(f"no table can be created at the URI of {job.rangefeed.owner}: {said}") from error
        rangefeed = job.open_rangefeed()
        try:
            rangefeed.check()
        finally:
            rangefeed.close()
            writer.drop_table(table)
    finally:
        writer.close()


def _parse_options(given: Given, registration: Registration) -> None:
    owner, options = f"{given.kind} '{given.name}'", given.place().options
    cls = load_class(registration.options, owner=owner, install_hint=registration.install_hint)
    for declared, of in ((cls, owner), (ChangefeedOptions, "the changefeed")):
        names = option_names(declared)
        parse_options(
            declared, {name: text for name, text in options.items() if name.partition(".")[0] in names}, owner=of
        )
