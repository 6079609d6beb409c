"""Checks a component before its suite runs: one error instead of a failure of every promise."""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import cast

from cdc_conformance.given import Given
from cdc_conformance.rangefeeds.suite import open_writer, resolved_changefeed
from cdc_conformance.sinks.rig import ORDERS, SinkRig
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.parts import Parts
from cdc_core.errors import CdcError, ConfigError
from cdc_core.options import option_names, parse_options
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import RangefeedRegistration, Registration
from cdc_core.sink_registration import SinkRegistration


def try_out(given: Given, host: PluginHost) -> None:
    """Return when the component accepts its URI and options. Leaves nothing behind.

    Raises: ConfigError with the component's own message.
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
    except Exception:  # a fault of the component: the promises that it breaks report it in full
        return


def _sink(given: Given, registration: SinkRegistration) -> None:
    place = given.place()
    rig = SinkRig(
        registration, uri=place.uri, format=given.format or "json", options=dict(place.options), read_back=None
    )
    changefeed = rig.feed()
    with closing(Parts(changefeed).open_destination()) as destination:
        destination.check()
    Parts(changefeed).open_encoder().check([(ORDERS, ORDERS.name.table)])


def _rangefeed(given: Given, registration: RangefeedRegistration) -> None:
    place, table = given.place(), f"cdc_try_{secrets.token_hex(4)}"
    changefeed = resolved_changefeed(registration, uri=place.uri, tables=(table,), options=place.options)
    if not registration.writer:
        return  # the suite reports that
    with closing(open_writer(changefeed, place.uri)) as writer:
        try:
            writer.create_table(table)
        except Exception as error:  # writers raise the errors of their clients
            said = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(f"no table can be created at the URI of {changefeed.rangefeed.owner}: {said}") from error
        try:
            with closing(Parts(changefeed).open_rangefeed()) as rangefeed:
                rangefeed.check()
        finally:
            writer.drop_table(table)


def _parse_options(given: Given, registration: Registration) -> None:
    owner, options = f"{given.kind} '{given.name}'", given.place().options
    cls = load_class(registration.options, owner=owner, install_hint=registration.install_hint)
    for declared, of in ((cls, owner), (ChangefeedOptions, "the changefeed")):
        names = option_names(declared)
        parse_options(
            declared, {name: text for name, text in options.items() if name.partition(".")[0] in names}, owner=of
        )
