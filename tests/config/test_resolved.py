"""Resolving a changefeed into a feed, and what the feed does for the processes of a run."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import Any

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.scripted import (
    CounterHistory,
    CounterPlanner,
    CounterRangefeed,
    CounterReader,
    JournalDestination,
    JournalResolvedSink,
    JournalSink,
    PlainEncoder,
)

from cdc_core import Locality, PlacementRules, RangefeedContext, SinkRegistration, TableName
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError, ContractError, OptionError, PluginLoadError, UnknownPluginError

SECRETS = ("hunter2", "url-pin", "option-key")


def changefeed(**changes: Any) -> Changefeed:
    fields: dict[str, Any] = {
        "name": "orders",
        "source": "paper://user:hunter2@desk/db?application_name=x",
        "tables": ("public.orders",),
        "sink": "shelf://room/top",
    }
    return Changefeed(**(fields | changes))


def feed(
    options: dict[str, Any] | None = None, *, shelf: SinkRegistration | None = None, **changes: Any
) -> ResolvedChangefeed:
    return resolve(changefeed(options=options or {}, **changes), host(rangefeed(), encoder(), shelf or sink()))


def secretive() -> ResolvedChangefeed:
    return feed({"source_key": "option-key"}, sink="shelf://room?pin=url-pin").for_attempt(
        feed_id="0123456789ab",
        epoch=7,
        state="postgresql://cdc:store-pw@db/cdc",
        table_names=[TableName("db", "public", "orders")],
    )


def test_each_option_goes_to_the_components_that_declare_it() -> None:
    resolved = feed({"updated": True, "null_text": "NULL", "topic_prefix": "x_", "scan_workers": 3})
    assert resolved.options.updated
    assert resolved.encoder.parsed().null_text == "NULL"
    assert resolved.sink.parsed().topic_prefix == "x_"
    assert resolved.rangefeed.parsed().scan_workers == 3


def test_a_cursor_needs_a_source_that_can_start_there_and_replaces_the_scan() -> None:
    with pytest.raises(OptionError) as raised:
        feed({"cursor": "0/1"})
    assert str(raised.value) == ("changefeed 'orders': source 'paper' cannot start at a cursor; remove option 'cursor'")

    def context(**options: Any) -> RangefeedContext:
        return Parts(
            resolve(changefeed(options=options), host(rangefeed(cursors=True), encoder(), sink()))
        ).rangefeed_context()

    assert (context().cursor, context().initial_scan) == (None, True)
    assert (context(cursor="0/1").cursor, context(cursor="0/1").initial_scan) == ("0/1", False)
    assert context(cursor="1970-01-01T00:00:01Z", initial_scan="yes").initial_scan
    assert context(cursor="1970-01-01T00:00:01Z").cursor == "1000000000.0000000000"


def test_placement_needs_a_source_with_replicas() -> None:
    with pytest.raises(OptionError, match=r"^changefeed 'orders': source 'paper' has no replicas; remove option 'pl"):
        feed({"placement": "random"})
    options = {"placement": "random", "execution_locality": "region=eu"}
    resolved = resolve(changefeed(options=options), host(rangefeed(replicas=True), encoder(), sink()))
    assert Parts(resolved).rangefeed_context().placement == PlacementRules(
        strategy="random", within=Locality.parse("region=eu")
    )


def test_an_unknown_option_is_refused_with_the_nearest_of_all_components() -> None:
    with pytest.raises(OptionError) as raised:
        feed({"updatd": True})
    assert str(raised.value) == "changefeed 'orders' has no option 'updatd'; did you mean 'updated'?"
    with pytest.raises(OptionError, match=r"has no option 'topic_prefx'; did you mean 'topic_prefix'\?"):
        feed({"topic_prefx": "x"})


def test_an_option_of_another_component_is_named_as_that() -> None:
    drawer = sink("drawer", schemes=("drawer",), options="cdc_testing.scripted:CounterOptions")
    for name in ("rows_per_step", "ROWS_PER_STEP"):
        with pytest.raises(OptionError) as raised:
            resolve(changefeed(options={name: 3}), host(rangefeed(), encoder(), sink(), drawer))
        assert str(raised.value) == (
            f"changefeed 'orders' has no option '{name}', which belongs to sink 'drawer', which is not used here;"
            " remove the option"
        )


def test_a_malformed_option_is_refused_by_the_component_that_declares_it() -> None:
    with pytest.raises(OptionError, match="rangefeed 'paper': option 'scan_workers' is 'many': must be a whole number"):
        feed({"scan_workers": "many"})


def test_parameters_of_the_sinks_uri_are_options_of_the_sink() -> None:
    resolved = feed(sink="shelf://room/top?topic_prefix=a%20b")
    assert resolved.destination == "shelf://room/top"
    assert resolved.sink.parsed().topic_prefix == "a b"


def test_the_scheme_of_the_sinks_uri_may_be_written_in_upper_case() -> None:
    assert feed(sink="SHELF://Room/Top?topic_prefix=X").destination == "shelf://Room/Top"


def test_many_known_options_are_not_listed() -> None:
    with pytest.raises(OptionError, match=r"has no option 'qqq'; none of the \d+ known names is similar$"):
        feed({"qqq": True})


def test_an_unknown_parameter_of_the_sinks_uri_is_refused() -> None:
    with pytest.raises(OptionError, match=r"sink 'shelf' has no option 'topic_prefx'; did you mean 'topic_prefix'"):
        feed(sink="shelf://room?topic_prefx=x")
    with pytest.raises(OptionError, match="sink 'shelf' has no option 'updated'"):
        feed(sink="shelf://room?updated=true")


def test_an_option_that_means_two_things_is_refused() -> None:
    with pytest.raises(
        OptionError, match="sink 'shelf' has an option 'updated', which is also an option of every changefeed; "
    ):
        feed({"updated": True}, shelf=sink(options="cdc_core.config.changefeed_options:ChangefeedOptions"))


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match="sets 'topic_prefix' twice, as a parameter of the sink's URI and as"):
        feed({"topic_prefix": "a"}, sink="shelf://room?topic_prefix=b")
    with pytest.raises(OptionError, match="sets the parameter 'topic_prefix' of the sink's URI twice"):
        feed(sink="shelf://room?topic_prefix=a&topic_prefix=b")


def test_options_and_parameters_may_be_written_in_upper_case() -> None:
    assert feed(sink="shelf://room?TOPIC_PREFIX=X_").sink.parsed().topic_prefix == "X_"
    resolved = feed({"UPDATED": True, "Topic_Prefix": "x_"})
    assert (resolved.options.updated, resolved.sink.parsed().topic_prefix) == (True, "x_")
    for twice in ({"topic_prefix": "a", "TOPIC_PREFIX": "b"}, {"TOPIC_PREFIX": "a"}):
        with pytest.raises(OptionError, match="changefeed 'orders' sets 'topic_prefix' twice"):
            feed(twice, sink="shelf://room?topic_prefix=c" if len(twice) == 1 else "shelf://room")


def test_the_sources_uri_keeps_its_parameters() -> None:
    assert feed().sources == ("paper://user:hunter2@desk/db?application_name=x",)


def test_an_encoder_that_cannot_write_what_the_sink_wants_is_refused_with_one_that_can() -> None:
    plugins = host(rangefeed(), encoder("parquet", outputs=frozenset({"files"})), encoder(), sink(output="messages"))
    with pytest.raises(
        ConfigError,
        match="changefeed 'orders': sink 'shelf' needs messages, which encoder 'parquet' does not write; "
        "choose another format: json",
    ):
        resolve(changefeed(format="parquet"), plugins)


def test_an_envelope_that_the_encoder_does_not_know_is_refused() -> None:
    with pytest.raises(OptionError, match="encoder 'json' does not write envelope 'bare'; it writes wrapped"):
        feed({"envelope": "bare"})


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"source": "mysql://x"}, "rangefeed for URIs that begin with 'mysql://'"),
        ({"sink": "kafka://x"}, "sink for URIs that begin with 'kafka://'"),
        ({"format": "avro"}, "encoder 'avro'"),
    ],
)
def test_a_component_that_is_not_installed_is_named(changes: dict[str, Any], missing: str) -> None:
    with pytest.raises(UnknownPluginError, match=f"there is no {missing}"):
        feed(**changes)


@pytest.mark.parametrize("option", [{"dead_letter_max": 1000}, {"DEAD_LETTER_ORDER": "block_key"}])
def test_options_of_dead_letters_are_refused_without_dead_letters(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(OptionError, match=f"option '{name.lower()}' has no effect without dead letters"):
        feed(option)
    feed({**option, "on_error": "dead_letter", "dead_letter": "shelf://dead"})


def test_an_option_that_the_envelope_has_no_place_for_is_refused() -> None:
    bare = encoder(envelopes=frozenset({"wrapped", "bare"}))
    wanted = r"'orders': envelope 'bare' cannot hold 'diff'; use 'wrapped' or 'enriched' or 'cloudevents'$"
    with pytest.raises(OptionError, match=wanted):
        resolve(changefeed(options={"envelope": "bare", "diff": True}), host(rangefeed(), bare, sink()))


def test_an_envelope_that_the_sink_cannot_take_is_refused() -> None:
    with pytest.raises(OptionError, match="sink 'shelf' does not accept envelope 'row'; it accepts bare, wrapped"):
        feed({"envelope": "row"}, shelf=sink(envelopes=frozenset({"wrapped", "bare"})))


def test_what_the_sink_forces_is_switched_on_in_the_envelope() -> None:
    resolved = feed({"updated": True}, shelf=sink(forced=frozenset({"key_in_value"})))
    envelope = resolved.envelope()
    assert (envelope.name, envelope.updated, envelope.key_in_value, envelope.diff) == ("wrapped", True, True, False)


def test_a_format_of_columns_alone_is_forced_to_nothing() -> None:
    lines = encoder(scans_only=True)
    shelf = sink(forced=frozenset({"key_in_value"}))
    scan = resolve(changefeed(options={"initial_scan": "only"}), host(rangefeed(), lines, shelf))
    assert not scan.envelope().key_in_value


def test_the_least_time_between_steps_is_the_users_else_the_sinks() -> None:
    slow = sink(min_checkpoint_frequency_s=10.0)
    assert feed(shelf=slow).min_checkpoint_frequency_s == 10.0
    assert feed({"min_checkpoint_frequency": "0s"}, shelf=slow).min_checkpoint_frequency_s == 0.0
    assert feed({"min_checkpoint_frequency": "500ms"}).min_checkpoint_frequency_s == 0.5


def test_a_resolved_changefeed_survives_the_way_to_another_process() -> None:
    whole = secretive()
    assert pickle.loads(pickle.dumps(whole)) == whole


def test_the_locality_is_that_of_the_environment_and_reaches_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_LOCALITY", "region=eu, zone=a")
    resolved = pickle.loads(pickle.dumps(feed()))
    assert str(Parts(resolved).rangefeed_context().locality) == "region=eu,zone=a"
    monkeypatch.setenv("CDC_LOCALITY", "eu")
    with pytest.raises(ConfigError, match="environment variable CDC_LOCALITY: 'eu' is not a locality"):
        feed()


def test_an_attempt_gives_the_changefeed_its_identity_and_changes_nothing_else() -> None:
    before = feed()
    after = before.for_attempt(feed_id="0123456789ab", epoch=3, state="sqlite:////x", table_names=[])
    assert (before.feed_id, before.epoch) == ("", 0)
    assert (after.feed_id, after.epoch, after.state, after.tables) == ("0123456789ab", 3, "sqlite:////x", before.tables)


def test_repr_and_definition_show_no_secret() -> None:
    whole = secretive()
    shown = f"{whole!r} {whole.definition()} {whole.rangefeed!r} {whole.sink!r}"
    assert not any(secret in shown for secret in (*SECRETS, "store-pw"))
    assert {key: whole.definition()[key] for key in ("source", "tables", "sink", "format", "place")} == {
        "source": "paper://user:***@desk/db?application_name=x",
        "tables": ["public.orders"],
        "sink": "shelf://room",
        "format": "json",
        "place": {},
    }


def test_a_secret_path_shows_nowhere() -> None:
    shelf = feed(shelf=sink(secret_path=True)).sink
    whole = dataclasses.replace(secretive(), destination="shelf://me@room/t0ken-of-mine", sink=shelf)
    assert whole.definition()["sink"] == "shelf://room/***"
    assert "t0ken-of-mine" not in repr(whole)
    assert pickle.loads(pickle.dumps(whole)) == whole


def test_every_secret_is_known_to_the_mask() -> None:
    assert secretive().secrets() >= {*SECRETS, "store-pw"}


def test_what_looks_secret_among_the_options_of_spark_is_known_too() -> None:
    assert "s3-key" in feed(spark={"spark.hadoop.fs.s3a.secret.key": "s3-key"}).secrets()


def test_a_secret_is_known_in_its_encoded_and_its_decoded_form() -> None:
    forms = feed(source="paper://user:p%40ss%2Fword@desk/db").secrets()
    assert {"p%40ss%2Fword", "p@ss/word"} <= forms


@pytest.mark.parametrize(
    ("target", "error", "complaint"),
    [
        ("no_such_module:Sink", PluginLoadError, "No module named 'no_such_module'; pip install 'cdc-shelf"),
        ("cdc_testing.scripted:NoSuchSink", PluginLoadError, "module 'cdc_testing.scripted' has no class 'NoSuchSink'"),
        ("cdc_testing.scripted:PlainEncoder", ContractError, "must be a subclass of cdc_core.sink.Sink"),
        ("cdc_core:Sink", ContractError, "'cdc_core:Sink' does not define emit, flush"),
    ],
)
def test_a_component_that_cannot_be_loaded_says_why(target: str, error: type[Exception], complaint: str) -> None:
    resolved = feed(shelf=sink(sink=target, install_hint="pip install 'cdc-shelf[fast]'"))
    with pytest.raises(error, match=f"sink 'shelf'.*{complaint.replace('[', '.')}"):
        Parts(resolved).open_sink()


def test_options_that_cannot_be_loaded_are_refused_while_resolving() -> None:
    with pytest.raises(PluginLoadError, match="sink 'shelf' cannot be loaded: ModuleNotFoundError"):
        feed(shelf=sink(options="no_such_module_at_all:Options"))
    with pytest.raises(ContractError, match="sink 'shelf': 'cdc_core:Sink' is not a frozen dataclass"):
        feed(shelf=sink(options="cdc_core:Sink"))


def test_components_are_opened_with_what_the_user_asked_for() -> None:
    plugins = host(
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    resolved = resolve(
        changefeed(options={"control": "/x", "diff": True, "initial_scan": "no", "full_table_name": True}), plugins
    ).for_attempt(feed_id="0123456789ab", epoch=7, table_names=[TableName("db", "public", "orders")], parallelism=4)
    source = Parts(resolved).open_rangefeed()
    assert isinstance(source, CounterRangefeed)
    assert isinstance(Parts(resolved).open_planner(), CounterPlanner)
    assert isinstance(Parts(resolved).open_reader(), CounterReader)
    assert isinstance(Parts(resolved).open_history(), CounterHistory)
    assert (source.context.diff, source.context.mvcc, source.context.initial_scan) == (True, False, False)
    assert (source.context.feed_id, source.context.parallelism) == ("0123456789ab", 4)
    assert isinstance(Parts(resolved).open_encoder(), PlainEncoder)
    destination = Parts(resolved).open_sink()
    assert isinstance(destination, JournalSink)
    assert isinstance(Parts(resolved).open_resolved_sink(), JournalResolvedSink)
    assert isinstance(Parts(resolved).open_destination(), JournalDestination)
    assert (destination.context.uri, destination.context.epoch) == ("shelf://room/top", 7)
    assert destination.context.tables == (TableName("db", "public", "orders"),)
    assert destination.context.topics("p_").of(TableName("db", "public", "orders")) == "p_db.public.orders"
    assert "hunter2" not in repr(source.context)


def test_an_enriched_changefeed_tells_its_encoder_where_rows_come_from() -> None:
    wide = encoder(envelopes=frozenset({"wrapped", "enriched"}))
    options = {"envelope": "enriched", "enriched_properties": "source,schema", "updated": True}
    resolved = resolve(changefeed(options=options), host(rangefeed(), wide, sink()))
    copy = pickle.loads(pickle.dumps(resolved))
    assert copy == resolved
    context = pickle.loads(pickle.dumps(Parts(copy).encoder_context()))
    assert context.envelope.enriched_properties == ("schema", "source")
    source = context.source
    assert (source.changefeed_sink, source.job_id, source.origin) == ("shelf", "orders", "paper")
    assert context.clock() > 1_700_000_000_000_000_000


def test_timestamps_of_an_enriched_changefeed_require_the_source() -> None:
    wide = encoder(envelopes=frozenset({"wrapped", "enriched"}))
    with pytest.raises(OptionError, match=r"'orders': envelope 'enriched' has 'updated' in its source"):
        resolve(changefeed(options={"envelope": "enriched", "updated": True}), host(rangefeed(), wide, sink()))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"resolved": "1s"},
            "at least 10s apart, not 1s as 'resolved' requests, .* is 10s by default; set .* = '1s'$",
        ),
        (
            {"resolved": "1s", "min_checkpoint_frequency": "5s"},
            "at least 5s apart.* min_checkpoint_frequency is 5s; set",
        ),
        ({"resolved": "1s", "min_checkpoint_frequency": "1s"}, None),
        ({"resolved": "10s"}, None),
        ({"resolved": True}, None),
        ({}, None),
    ],
)
def test_marks_that_come_more_rarely_than_asked_are_named(given: dict[str, Any], told: str | None) -> None:
    found = feed(given, shelf=sink(min_checkpoint_frequency_s=10.0)).rarer_marks()
    assert (found is None) == (told is None)
    assert found is None or re.search(told or "", found)


QUERY = "SELECT id, kind AS cdc_topic FROM public.orders"


@pytest.mark.parametrize(
    ("options", "query", "shared"),
    [({}, QUERY, "a cdc_topic"), ({"key_column": "customer", "unordered": True}, None, "a value of key_column")],
    ids=["cdc_topic", "key_column"],
)
def test_several_tasks_do_not_deliver_what_has_an_order_between_rows(
    options: dict[str, Any], query: str | None, shared: str
) -> None:
    plugins = host(rangefeed(), encoder(rekeys=True), sink(routes=True, output="messages"))
    tables = () if query else ("public.orders",)
    resolve(changefeed(options=options, query=query, tables=tables), plugins)
    with pytest.raises(OptionError, match=f"but rows that share {shared} do not; remove option 'delivery_tasks'"):
        resolve(changefeed(options={**options, "delivery_tasks": 2}, query=query, tables=tables), plugins)


@pytest.mark.parametrize("setting", ["spark.speculation", "spark.shuffle.manager"])
def test_several_tasks_need_that_spark_exchanges_rows_in_its_own_way(setting: str) -> None:
    feed(spark={setting: "x"})
    with pytest.raises(OptionError, match=f"remove the setting '{setting}'"):
        feed({"delivery_tasks": 2}, spark={setting: "x"})
