"""From a changefeed and the installed plugins to a job, with everything refused that cannot work."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl

from cdc_core.config.changefeed import Changefeed, ChangefeedOptions
from cdc_core.config.resolved import Component, Job
from cdc_core.delivery.dead_letters import dead_letter_changefeed, dead_letter_table
from cdc_core.errors import ConfigError, OptionError
from cdc_core.masking import secret_texts, uri_secrets
from cdc_core.options import option_names, parse_options, secret_values
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import EncoderRegistration, Registration, SinkRegistration

__all__ = ["resolve", "spelled", "split_parameters"]


def resolve(changefeed: Changefeed, host: PluginHost) -> Job:
    """Return *changefeed* ready to run, all its options checked. Connects to nothing and loads only options classes.

    Raises: OptionError, UnknownPluginError, PluginConflictError, PluginLoadError; ConfigError for what cannot work
    together.
    """
    return _resolved(changefeed, host)


def _resolved(changefeed: Changefeed, host: PluginHost, *, source: Component | None = None) -> Job:
    """Do what `resolve` does; with *source*, which is resolved already, its options are not *changefeed*'s."""
    encoder = host.encoder(changefeed.format)
    sink = host.sink_for(changefeed.sink)
    owner = f"changefeed '{changefeed.name}'"
    destination, parameters = split_parameters(changefeed.sink, owner=owner)
    registrations: list[Registration] = [encoder, sink]
    bare = [_component("encoder", encoder), _component("sink", sink)]
    if source is None:
        rangefeed = host.rangefeed_for(changefeed.source)
        registrations.append(rangefeed)
        bare.append(_component("rangefeed", rangefeed))
    declared = {component.kind: option_names(component.load_options()) for component in bare}
    core_names = option_names(ChangefeedOptions)
    known = {name for names in (core_names, *declared.values()) for name in names}
    given = spelled(changefeed.options, known, owner=owner)
    parameters = spelled(parameters, known, owner=owner)
    _refuse_unknown(changefeed.name, given, known)
    values = {
        component.kind: {name: value for name, value in given.items() if _declared(name) in declared[component.kind]}
        for component in bare
    }
    for name in parameters:
        if name in given:
            raise OptionError(
                f"{owner} gives '{name}' twice, as a parameter of the sink's URI and as an option; keep one of them"
            )
    values["sink"] |= parameters
    components = {
        component.kind: _component(component.kind, registration, values[component.kind])
        for component, registration in zip(bare, registrations, strict=True)
    }
    options = parse_options(
        ChangefeedOptions,
        {name: given[name] for name in core_names if name in given},
        owner=owner,
    )
    _refuse_impossible(owner, options, encoder, sink, host)
    for name in ("dead_letter_max", "dead_letter_order"):
        if name in given and options.on_error != "dead_letter":
            raise OptionError(
                f"{owner}: option '{name}' says nothing where no row is put aside: leave it out, or set on_error ="
                " 'dead_letter'"
            )
    parsed = [component.parsed() for component in components.values()]
    frequency = options.min_checkpoint_frequency
    source = source or components["rangefeed"]
    letters = None if options.dead_letter is None else _dead_letter_job(changefeed, options.dead_letter, host, source)
    return Job(
        name=changefeed.name,
        tables=changefeed.tables,
        source=changefeed.source,
        destination=destination,
        rangefeed=source,
        encoder=components["encoder"],
        sink=components["sink"],
        options=options,
        output=sink.output,
        secret_path=sink.secret_path,
        forced=frozenset() if encoder.scans_only else sink.forced,  # such a format has columns and nothing else
        min_checkpoint_frequency_s=sink.min_checkpoint_frequency_s if frequency is None else frequency,
        spark=changefeed.spark,
        plain_secrets=_secrets(changefeed, [*parsed, options]) | (letters.plain_secrets if letters else frozenset()),
        dead_letter=letters,
    )


def _dead_letter_job(changefeed: Changefeed, uri: str, host: PluginHost, source: Component) -> Job:
    try:
        job = _resolved(dead_letter_changefeed(changefeed, uri), host, source=source)
    except ConfigError as error:
        raise type(error)(f"changefeed '{changefeed.name}', option 'dead_letter': {error}") from error
    return dataclasses.replace(job, table_names=(dead_letter_table(changefeed.name),))


def split_parameters(uri: str, *, owner: str) -> tuple[str, dict[str, str]]:
    """Return a sink's URI without its parameters, its scheme in lower case, and the parameters by name.

    Raises: OptionError that begins with *owner*, for one that is there twice.
    """
    destination, _, query = uri.partition("?")
    scheme, separator, place = destination.partition("://")
    destination = f"{scheme.lower()}{separator}{place}"
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in parameters:
            raise OptionError(f"{owner} gives the parameter '{key}' of the sink's URI twice; keep one of them")
        parameters[key] = value
    return destination, parameters


def _component(kind: str, registration: Registration, values: Mapping[str, Any] | None = None) -> Component:
    return Component(
        kind=kind,
        name=registration.name,
        target=registration.target,
        options=registration.options,
        values=values or {},
        install_hint=registration.install_hint,
    )


def _declared(name: str) -> str:
    """Return the option that *name* belongs to: `librdkafka.linger.ms` is an entry of the table `librdkafka`."""
    return name.partition(".")[0]


def spelled(values: Mapping[str, Any], known: Collection[str], *, owner: str) -> dict[str, Any]:
    """Return *values* by their declared names: upper case is as good, as in CockroachDB's `AWS_REGION`.

    Raises: OptionError that begins with *owner*, for one that is there twice.
    """
    found: dict[str, Any] = {}
    for written, value in values.items():
        head, dot, rest = written.partition(".")
        name = f"{head.lower()}{dot}{rest}" if head not in known and head.lower() in known else written
        if name in found:
            raise OptionError(f"{owner} gives '{name}' twice, in two spellings; keep one of them")
        found[name] = value
    return found


def _refuse_unknown(changefeed: str, given: Mapping[str, Any], known: set[str]) -> None:
    for name in given:
        if _declared(name) not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"it knows {', '.join(sorted(known))}"
            raise OptionError(f"changefeed '{changefeed}' does not know option '{name}'; {hint}")


def _refuse_impossible(
    owner: str, options: ChangefeedOptions, encoder: EncoderRegistration, sink: SinkRegistration, host: PluginHost
) -> None:
    """Raise a ConfigError when encoder, sink and envelope do not fit together."""
    if sink.output not in encoder.outputs:
        fit = [other.name for other in host.encoders() if sink.output in other.outputs]
        remedy = f"choose another format: {', '.join(fit)}" if fit else "no installed encoder writes them"
        raise ConfigError(
            f"{owner}: sink '{sink.name}' wants {sink.output}, which encoder '{encoder.name}' does not write; {remedy}"
        )
    if encoder.scans_only and options.initial_scan != "only":
        raise OptionError(
            f"{owner}: format '{encoder.name}' has no place for deletes and resolved marks: set initial_scan = 'only',"
            " or choose another format"
        )
    if sink.envelopes is not None and options.envelope not in sink.envelopes:
        raise OptionError(
            f"{owner}: sink '{sink.name}' cannot take envelope '{options.envelope}'; "
            f"it takes {', '.join(sorted(sink.envelopes))}"
        )
    if options.envelope not in encoder.envelopes:
        raise OptionError(
            f"{owner}: encoder '{encoder.name}' does not know envelope '{options.envelope}'; "
            f"it knows {', '.join(sorted(encoder.envelopes))}"
        )


def _secrets(changefeed: Changefeed, parsed: list[Any]) -> frozenset[str]:
    """Return every secret that the changefeed holds, as written."""
    found = set(uri_secrets(changefeed.source) | uri_secrets(changefeed.sink))
    for options in parsed:
        found.update(secret_values(options))
    found.update(secret_texts(changefeed.options))
    found.update(secret_texts(changefeed.spark))
    return frozenset(found)
