"""From a changefeed and the installed plugins to a resolved changefeed, with everything refused that cannot work."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from cdc_core.config.changefeed import Changefeed, dead_letter_changefeed, dead_letter_table
from cdc_core.config.changefeed_options import ChangefeedOptions, require_exchange
from cdc_core.config.component import Component
from cdc_core.config.definition import stored_definition
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.sinkless import SINKLESS, refuse_unused
from cdc_core.envelope_shapes import SHAPES, DeleteForm
from cdc_core.errors import ConfigError, OptionError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.masking import secret_texts, uri_secrets
from cdc_core.options import did_you_mean, option_names, parse_options, secret_values
from cdc_core.placement import executor_locality
from cdc_core.plugins.host import PluginHost
from cdc_core.queries.parser import parse_query
from cdc_core.queries.selection import Selection
from cdc_core.queries.table_queries import TableQueries
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration, Registration
from cdc_core.sink_registration import SinkRegistration
from cdc_core.uris import place_of, split_parameters

R = TypeVar("R", bound=Registration)


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
    _refuse_impossible(f"changefeed '{changefeed.name}'", options, resolved.encoder.registration, SINKLESS, host)
    if SHAPES[options.envelope].events and options.cloudevents_mode == "binary":
        raise OptionError(
            f"changefeed '{changefeed.name}': cloudevents_mode 'binary' puts attributes into headers, but messages"
            " without a sink have no headers; set cloudevents_mode = 'structured'"
        )
    return dataclasses.replace(
        resolved,
        sink=Component(registration=SINKLESS),
        destination="",
        options=options,
        min_checkpoint_frequency_s=options.min_checkpoint_frequency or 0.0,
        dead_letter=None,
        locality=executor_locality(),
    )


def _resolved(
    changefeed: Changefeed, host: PluginHost, *, source: Component[RangefeedRegistration] | None = None
) -> ResolvedChangefeed:
    """Do what `resolve` does. With *source*, which is resolved already, its options are not *changefeed*'s."""
    owner = f"changefeed '{changefeed.name}'"
    destination, parameters = split_parameters(changefeed.sink, owner=owner) if changefeed.sink else ("", {})
    encoder = Component(registration=host.encoder(changefeed.format))
    sink = Component(registration=host.sink_for(changefeed.sink) if changefeed.sink else SINKLESS)
    rangefeed = source or _source(changefeed, host)
    bare: list[Component[Any]] = [encoder, sink] if source else [encoder, sink, rangefeed]
    declared = {component.owner: option_names(component.load_options()) for component in bare}
    core_names = option_names(ChangefeedOptions)
    known = {name for names in (core_names, *declared.values()) for name in names}
    given = canonical_names(changefeed.options, known, owner=owner)
    parameters = canonical_names(parameters, known, owner=owner)

    def mine(component: Component[R], more: Mapping[str, Any] = MappingProxyType({})) -> Component[R]:
        """Return *component* with those of the options that it declares, and *more*."""
        names = declared[component.owner]
        values = {name: value for name, value in given.items() if _declared(name) in names}
        return dataclasses.replace(component, values=values | dict(more))

    for name in given:
        if _declared(name) not in known:
            hint = _not_used(_declared(name).lower(), host) or did_you_mean(name, known)
            raise OptionError(f"{owner} has no option '{name}'{hint}")
        if name in parameters:
            raise OptionError(
                f"{owner} sets '{name}' twice, as a parameter of the sink's URI and as an option; keep one of them"
            )
    encoder, sink = mine(encoder), mine(sink, parameters)
    rangefeed = source or mine(rangefeed)
    own: list[Component[Any]] = [encoder, sink] if source else [encoder, sink, rangefeed]
    core = {name: given[name] for name in core_names if name in given}
    if "cursor" in core:
        core.setdefault("initial_scan", "no")
    if changefeed.query is not None:
        core = _for_query(owner, core, encoder.registration, sink.registration)
    options = parse_options(ChangefeedOptions, core, owner=owner)
    if options.cursor is not None and not rangefeed.registration.cursors:
        raise OptionError(f"{owner}: source '{rangefeed.name}' cannot start at a cursor; remove option 'cursor'")
    if options.cursor is not None and options.after is None and len(changefeed.sources) > 1:
        raise OptionError(
            f"{owner}: cursor '{options.cursor}' is a position of one source, but there are several sources; set a time"
        )
    if options.placement is not None and not rangefeed.registration.replicas:
        raise OptionError(f"{owner}: source '{rangefeed.name}' has no replicas; remove option 'placement'")
    require_exchange(owner, options, changefeed.spark)
    _refuse_impossible(owner, options, encoder.registration, sink.registration, host)
    _refuse_pointless(owner, options, given)
    selections = TableQueries.of(changefeed.query, changefeed.table).selections
    _check_mask_key(owner, options, selections)
    _refuse_about_topics(owner, changefeed, given, sink.registration, options)
    letters = None if options.dead_letter is None else _dead_letters(changefeed, options.dead_letter, host, rangefeed)
    frequency = options.min_checkpoint_frequency
    secrets = _secrets(changefeed, [*(component.parsed() for component in own), options])
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
        installed_functions=_functions(changefeed, selections, host),
        selections=selections,
        min_checkpoint_frequency_s=sink.registration.min_checkpoint_frequency_s if frequency is None else frequency,
        spark=changefeed.spark,
        plain_secrets=secrets | (letters.plain_secrets if letters else frozenset()),
        dead_letter=letters,
    )
    resolved.envelope().check(owner)
    try:
        resolved.queries().refers_to("column")  # parses it
    except ConfigError as error:
        raise type(error)(f"{owner}: {error}") from None
    return resolved


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


def _refuse_impossible(
    owner: str, options: ChangefeedOptions, encoder: EncoderRegistration, sink: SinkRegistration, host: PluginHost
) -> None:
    """Raise a ConfigError when encoder, sink and envelope do not fit together."""
    if sink.output not in encoder.outputs:
        fit = [other.name for other in host.encoders() if sink.output in other.outputs]
        remedy = f"choose another format: {', '.join(fit)}" if fit else "no installed encoder writes them"
        raise ConfigError(
            f"{owner}: sink '{sink.name}' needs {sink.output}, which encoder '{encoder.name}' does not write; {remedy}"
        )
    if encoder.scans_only and options.initial_scan != "only":
        raise OptionError(
            f"{owner}: format '{encoder.name}' cannot represent deletes and resolved marks; set initial_scan = 'only',"
            " or choose another format"
        )
    if options.key_column is not None and sink.output != "messages":
        raise OptionError(
            f"{owner}: sink '{sink.name}' writes files, which have no message keys; remove option 'key_column'"
        )
    if options.key_column is not None and not encoder.rekeys:
        raise OptionError(
            f"{owner}: encoder '{encoder.name}' always uses the primary key as the message key; remove option "
            "'key_column', or choose another format"
        )
    if options.key_column is not None and SHAPES[options.envelope].delete is DeleteForm.TOMBSTONE:
        raise OptionError(
            f"{owner}: envelope '{options.envelope}' identifies a deleted row only by its key, but with 'key_column' "
            "the key does not identify the row; use envelope 'bare' or 'wrapped'"
        )
    accepted = sink.envelopes
    if accepted is None:
        accepted = frozenset(name for name, shape in SHAPES.items() if not shape.events)
    if options.envelope not in accepted:
        raise OptionError(
            f"{owner}: sink '{sink.name}' does not accept envelope '{options.envelope}'; "
            f"it accepts {', '.join(sorted(accepted))}"
        )
    if options.envelope not in encoder.envelopes:
        raise OptionError(
            f"{owner}: encoder '{encoder.name}' does not write envelope '{options.envelope}'; "
            f"it writes {', '.join(sorted(encoder.envelopes))}"
        )


def _refuse_pointless(owner: str, options: ChangefeedOptions, given: Mapping[str, Any]) -> None:
    for name in ("cloudevents_mode", "cloudevents_source", "cloudevents_type_prefix"):
        if name in given and not SHAPES[options.envelope].events:
            raise OptionError(f"{owner}: option '{name}' requires envelope 'cloudevents'; remove it")
    for name in ("dead_letter_max", "dead_letter_order"):
        if name in given and options.on_error != "dead_letter":
            raise OptionError(
                f"{owner}: option '{name}' has no effect without dead letters; remove it, or set on_error ="
                " 'dead_letter'"
            )


def _check_mask_key(owner: str, options: ChangefeedOptions, selections: Sequence[Selection]) -> None:
    hashed = next((selection for selection in selections if selection.hashes), None)
    if hashed is not None and options.mask_key is None:
        raise OptionError(
            f"{owner}, table {hashed.table}: mask 'hash' needs a key; set option mask_key ="
            " '${MASK_KEY}', and the environment variable MASK_KEY"
        )
    if hashed is None and options.mask_key is not None:
        raise OptionError(f"{owner}: option 'mask_key' has no effect, because no mask hashes values; remove it")


def _refuse_about_topics(
    owner: str, changefeed: Changefeed, given: Mapping[str, Any], sink: SinkRegistration, options: ChangefeedOptions
) -> None:
    """Raise an OptionError when the sink cannot obey a query that gives topics, or an option would have no effect.

    Likewise when several tasks would deliver the rows of one topic, or of one key of messages.
    """
    routes = changefeed.query is not None and parse_query(changefeed.query, tuple(changefeed.functions.items())).routes
    if routes and not sink.routes:
        raise OptionError(
            f"{owner}: its query gives rows a cdc_topic, which sink '{sink.name}' does not support; choose another"
            " sink, or rename that column"
        )
    shared = "a cdc_topic" if routes else "a value of key_column" if options.key_column is not None else None
    if options.delivery_tasks > 1 and shared is not None:
        raise OptionError(
            f"{owner}: with option 'delivery_tasks', the versions of a row stay in order, but rows that share {shared}"
            " do not; remove option 'delivery_tasks'"
        )
    for name in ("topic", "full_table_name") if routes else ("max_topics",):
        if name in given:
            reason = "its query gives each row a cdc_topic" if routes else "no query gives rows a cdc_topic"
            raise OptionError(f"{owner}: option '{name}' has no effect, because {reason}; remove it")


def _secrets(changefeed: Changefeed, parsed: list[Any]) -> frozenset[str]:
    found = set(uri_secrets(changefeed.sink)).union(*map(uri_secrets, changefeed.sources))
    for options in parsed:
        found.update(secret_values(options))
    found.update(secret_texts(changefeed.options))
    found.update(secret_texts(changefeed.spark))
    return frozenset(found)
