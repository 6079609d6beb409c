"""What the parts and the options of a changefeed cannot do together."""

from __future__ import annotations

from collections.abc import Collection

from cdc_core.config.changefeed_options import require_exchange
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope_shapes import SHAPES, DeleteForm
from cdc_core.errors import ConfigError, OptionError
from cdc_core.plugins.host import PluginHost
from cdc_core.queries.parser import parse_query


def require_fit(feed: ResolvedChangefeed, given: Collection[str], host: PluginHost) -> None:
    """Return when nothing in *feed* contradicts the rest of it, or is without effect. *given* are its options by name.

    Raises: OptionError, ConfigError.
    """
    owner = f"changefeed '{feed.name}'"
    _require_ability(owner, feed)
    require_exchange(owner, feed.options, feed.spark)
    require_output(feed, host)
    _refuse_pointless(owner, feed, given)
    _require_mask_key(owner, feed)
    _refuse_about_topics(owner, feed, given)


def _require_ability(owner: str, feed: ResolvedChangefeed) -> None:
    source, options = feed.rangefeed, feed.options
    if options.cursor is not None and not source.registration.cursors:
        raise OptionError(f"{owner}: source '{source.name}' cannot start at a cursor; remove option 'cursor'")
    if options.cursor is not None and options.after is None and len(feed.sources) > 1:
        raise OptionError(
            f"{owner}: cursor '{options.cursor}' is a position of one source, but there are several sources; set a time"
        )
    if options.placement is not None and not source.registration.replicas:
        raise OptionError(f"{owner}: source '{source.name}' has no replicas; remove option 'placement'")


def require_output(feed: ResolvedChangefeed, host: PluginHost) -> None:
    """Return when encoder, sink and envelope fit together. Raises: ConfigError."""
    owner, options = f"changefeed '{feed.name}'", feed.options
    encoder, sink = feed.encoder.registration, feed.sink.registration
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


def _refuse_pointless(owner: str, feed: ResolvedChangefeed, given: Collection[str]) -> None:
    for name in ("cloudevents_mode", "cloudevents_source", "cloudevents_type_prefix"):
        if name in given and not SHAPES[feed.options.envelope].events:
            raise OptionError(f"{owner}: option '{name}' requires envelope 'cloudevents'; remove it")
    for name in ("dead_letter_max", "dead_letter_order"):
        if name in given and feed.options.on_error != "dead_letter":
            raise OptionError(
                f"{owner}: option '{name}' has no effect without dead letters; remove it, or set on_error ="
                " 'dead_letter'"
            )


def _require_mask_key(owner: str, feed: ResolvedChangefeed) -> None:
    hashed = next((selection for selection in feed.selections if selection.hashes), None)
    if hashed is not None and feed.options.mask_key is None:
        raise OptionError(
            f"{owner}, table {hashed.table}: mask 'hash' needs a key; set option mask_key ="
            " '${MASK_KEY}', and the environment variable MASK_KEY"
        )
    if hashed is None and feed.options.mask_key is not None:
        raise OptionError(f"{owner}: option 'mask_key' has no effect, because no mask hashes values; remove it")


def _refuse_about_topics(owner: str, feed: ResolvedChangefeed, given: Collection[str]) -> None:
    """Raise an OptionError when the sink cannot obey a query that gives topics, or an option would have no effect.

    Likewise when several tasks would deliver the rows of one topic, or of one key of messages.
    """
    sink, options = feed.sink.registration, feed.options
    routes = feed.query is not None and parse_query(feed.query, tuple(feed.functions.items())).routes
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
