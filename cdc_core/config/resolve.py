"""From a changefeed and the installed plugins to a resolved changefeed, with everything refused that cannot work."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cdc_core.config.changefeed import Changefeed, dead_letter_changefeed, dead_letter_table
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.combinations import require_fit, require_output
from cdc_core.config.component import Component
from cdc_core.config.definition import stored_definition
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.sinkless import SINKLESS, refuse_unused
from cdc_core.envelope_shapes import SHAPES
from cdc_core.errors import ConfigError, OptionError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.masking import secret_texts, uri_secrets
from cdc_core.options import did_you_mean, option_names, parse_options, secret_values
from cdc_core.placement import executor_locality
from cdc_core.plugins.host import PluginHost
from cdc_core.queries.selection import Selection
from cdc_core.queries.table_queries import TableQueries
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration
from cdc_core.sink_registration import SinkRegistration
from cdc_core.uris import place_of, split_parameters


def resolve(changefeed: Changefeed, host: PluginHost) -> ResolvedChangefeed:
    """Return *changefeed* ready to run, all its options checked. Connects to nothing and loads only options classes.

    Its locality is that of the environment variable CDC_LOCALITY. Raises: OptionError, UnknownPluginError,
    PluginConflictError, PluginLoadError; ConfigError for parts that cannot work together.
    """
    if not changefeed.sink:
        raise ConfigError(f"changefeed '{changefeed.name}' has no sink to deliver to; set 'sink', or use `cdc watch`")
    resolved = _resolved(changefeed, host)
    stored = stored_definition(changefeed, resolved, host)
    return dataclasses.replace(resolved, stored=stored, locality=executor_locality())


def resolve_without_sink(changefeed: Changefeed, host: PluginHost) -> ResolvedChangefeed:
    """Return *changefeed* resolved for someone who takes its messages directly; a sink that it has is not used.

    Then its messages have nothing that only the sink asks for, and there are no dead letters. Raises: as `resolve`;
    OptionError when it has no sink, and an option that needs one.
    """
    if not changefeed.sink:
        refuse_unused([*changefeed.options, *changefeed.spark], owner=f"changefeed '{changefeed.name}'")
    resolved = resolve(changefeed, host) if changefeed.sink else _resolved(changefeed, host)
    options = dataclasses.replace(resolved.options, on_error="fail", dead_letter=None, delivery_tasks=1)
    direct = dataclasses.replace(
        resolved,
        sink=Component(registration=SINKLESS),
        destination="",
        options=options,
        min_checkpoint_frequency_s=options.min_checkpoint_frequency or 0.0,
        dead_letter=None,
        locality=executor_locality(),
    )
    require_output(direct, host)
    if SHAPES[options.envelope].events and options.cloudevents_mode == "binary":
        raise OptionError(
            f"changefeed '{changefeed.name}': cloudevents_mode 'binary' puts attributes into headers, but messages"
            " without a sink have no headers; set cloudevents_mode = 'structured'"
        )
    return direct


def _resolved(
    changefeed: Changefeed, host: PluginHost, *, source: Component[RangefeedRegistration] | None = None
) -> ResolvedChangefeed:
    """Do what `resolve` does. With *source*, which is resolved already, its options are not *changefeed*'s."""
    owner = f"changefeed '{changefeed.name}'"
    destination, parameters = split_parameters(changefeed.sink, owner=owner) if changefeed.sink else ("", {})
    encoder = Component(registration=host.encoder(changefeed.format))
    sink = Component(registration=host.sink_for(changefeed.sink) if changefeed.sink else SINKLESS)
    rangefeed = source or _source(changefeed, host)
    parts: list[Component[Any]] = [encoder, sink] if source else [encoder, sink, rangefeed]
    declared = {part.owner: option_names(part.load_options()) for part in parts}
    core_names = option_names(ChangefeedOptions)
    known = {name for names in (core_names, *declared.values()) for name in names}
    given = canonical_names(changefeed.options, known, owner=owner)
    parameters = canonical_names(parameters, known, owner=owner)
    _require_known(owner, given, parameters, known, host)
    for number, part in enumerate(parts):
        mine = {name: value for name, value in given.items() if _declared(name) in declared[part.owner]}
        for name in mine.keys() & core_names:
            raise OptionError(
                f"{owner}: {part.owner} has an option '{name}', which is also an option of every changefeed; rename it"
                " in the plugin"
            )
        parts[number] = dataclasses.replace(part, values=mine | parameters if part is sink else mine)
    encoder, sink, rangefeed = parts[0], parts[1], source or parts[2]
    core = {name: given[name] for name in core_names if name in given}
    if "cursor" in core:
        core.setdefault("initial_scan", "no")
    if changefeed.query is not None:
        core = _for_query(owner, core, encoder.registration, sink.registration)
    options = parse_options(ChangefeedOptions, core, owner=owner)
    frequency = options.min_checkpoint_frequency
    resolved = ResolvedChangefeed(
        name=changefeed.name,
        tables=changefeed.tables,
        sources=changefeed.sources,
        destination=destination,
        rangefeed=rangefeed,
        encoder=encoder,
        sink=sink,
        options=options,
        query=changefeed.query,
        functions=changefeed.functions,
        selections=TableQueries.of(changefeed.query, changefeed.table).selections,
        min_checkpoint_frequency_s=sink.registration.min_checkpoint_frequency_s if frequency is None else frequency,
        spark=changefeed.spark,
    )
    require_fit(resolved, given, host)
    letters = None if options.dead_letter is None else _dead_letters(changefeed, options.dead_letter, host, rangefeed)
    secrets = _secrets(changefeed, [*(part.parsed() for part in parts), options])
    resolved = dataclasses.replace(
        resolved,
        installed_functions=_functions(changefeed, resolved.selections, host),
        plain_secrets=secrets | (letters.plain_secrets if letters else frozenset()),
        dead_letter=letters,
    )
    resolved.envelope().check(owner)
    try:
        resolved.queries().refers_to("column")  # parses it
    except ConfigError as error:
        raise type(error)(f"{owner}: {error}") from None
    return resolved


def _require_known(
    owner: str, given: Collection[str], parameters: Collection[str], known: Collection[str], host: PluginHost
) -> None:
    for name in given:
        if _declared(name) not in known:
            hint = _not_used(_declared(name).lower(), host) or did_you_mean(name, known)
            raise OptionError(f"{owner} has no option '{name}'{hint}")
        if name in parameters:
            raise OptionError(
                f"{owner} sets '{name}' twice, as a parameter of the sink's URI and as an option; keep one of them"
            )


def _not_used(name: str, host: PluginHost) -> str:
    """Return which installed part has the option *name*, for an error; empty if there is none."""
    for registration in host.components():
        component: Component[Any] = Component(registration=registration)
        with contextlib.suppress(ConfigError):
            if name in option_names(component.load_options()):
                return f", which belongs to {component.owner}, which is not used here; remove the option"
    return ""


def canonical_names(values: Mapping[str, Any], known: Collection[str], *, owner: str) -> dict[str, Any]:
    """Return *values* by their declared names. Upper case is accepted, as in CockroachDB's `AWS_REGION`.

    Raises: OptionError, which begins with *owner*, for a name that is there twice.
    """
    found: dict[str, Any] = {}
    for written, value in values.items():
        head, dot, rest = written.partition(".")
        name = f"{head.lower()}{dot}{rest}" if head not in known and head.lower() in known else written
        if name in found:
            raise OptionError(f"{owner} sets '{name}' twice, in two spellings; keep one of them")
        found[name] = value
    return found


def _for_query(
    owner: str, given: Mapping[str, Any], encoder: EncoderRegistration, sink: SinkRegistration
) -> dict[str, Any]:
    """Return the options of a changefeed with a query: rows are bare by default, where that is possible."""
    if str(given.get("diff", False)).lower() not in ("false", "no", "off", "0"):
        raise OptionError(
            f"{owner}: option 'diff' adds the whole row before the change, which a query does not return; remove the"
            " option, and select columns of cdc_prev"
        )
    bare = "bare" in encoder.envelopes and (sink.envelopes is None or "bare" in sink.envelopes)
    return {"envelope": "bare" if bare else "wrapped", **given}


def _functions(
    changefeed: Changefeed, selections: Sequence[Selection], host: PluginHost
) -> tuple[FunctionRegistration, ...]:
    """Return the Python functions that the query, one of its functions, or the condition of a section calls."""
    texts = [selection.where for selection in selections if selection.where is not None]
    if changefeed.query is not None:
        texts = [changefeed.query, *changefeed.functions.values()]
    if not texts:
        return ()
    from cdc_core.queries.dialect import called_names  # loads the parser

    names = {name for text in texts for name in called_names(text)} & host.function_names
    return tuple(host.function(name) for name in sorted(names - set(changefeed.functions)))


def _source(changefeed: Changefeed, host: PluginHost) -> Component[RangefeedRegistration]:
    """Return what reads the sources. Raises: ConfigError when they are not of one kind."""
    first, *others = [host.rangefeed_for(uri) for uri in changefeed.sources]
    for uri, other in zip(changefeed.sources[1:], others, strict=True):
        if other.name != first.name:
            raise ConfigError(
                f"changefeed '{changefeed.name}': source {place_of(changefeed.sources[0])} is of kind '{first.name}',"
                f" but {place_of(uri)} is of kind '{other.name}'; use sources of one kind, or two changefeeds"
            )
    return Component(registration=first)


def _dead_letters(
    changefeed: Changefeed, uri: str, host: PluginHost, source: Component[RangefeedRegistration]
) -> ResolvedChangefeed:
    try:
        letters = _resolved(dead_letter_changefeed(changefeed, uri), host, source=source)
    except ConfigError as error:
        raise type(error)(f"changefeed '{changefeed.name}', option 'dead_letter': {error}") from error
    return dataclasses.replace(letters, table_names=(dead_letter_table(changefeed.name),))


def _declared(name: str) -> str:
    """Return the option that *name* belongs to: `librdkafka.linger.ms` is an entry of the table `librdkafka`."""
    return name.partition(".")[0]


def _secrets(changefeed: Changefeed, parsed: list[Any]) -> frozenset[str]:
    found = set(uri_secrets(changefeed.sink)).union(*map(uri_secrets, changefeed.sources))
    for options in parsed:
        found.update(secret_values(options))
    found.update(secret_texts(changefeed.options))
    found.update(secret_texts(changefeed.spark))
    return frozenset(found)
