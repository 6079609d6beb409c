"""The plugin host: one bad plugin harms nobody but itself, and is named with what is wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy
import pyarrow as pa
import pytest
from cdc_testing.components import encoder, host, plugin, rangefeed, sink, source_of
from cdc_testing.distributions import install
from cdc_testing.query_functions import FUNCTIONS
from cdc_testing.runs import at_once

from cdc_core import hookimpl
from cdc_core.errors import PluginConflictError, PluginLoadError, UnknownPluginError
from cdc_core.plugins.entry_points import Published
from cdc_core.plugins.host import DISTRIBUTIONS, PluginHost

GOOD_SINK = """
    from cdc_core import SinkRegistration, hookimpl

    @hookimpl
    def cdc_register_sinks():
        yield SinkRegistration(
            name="{name}", options="nowhere:Options", summary="{summary}",
            schemes=("{name}",), output="messages",
            sink="nowhere:Sink", resolved_sink="nowhere:Marks", destination="nowhere:Place",
        )
"""

WRONG_TYPE = """
    from cdc_core import hookimpl

    @hookimpl
    def cdc_register_sinks():
        return 5
"""


def failing(error: BaseException, distribution: str = "cdc-broken") -> Published:
    def load() -> object:
        raise error

    return Published(name="broken", load=load, distribution=distribution, version="0.3")


def problems(*sources: Published) -> list[str]:
    return [listed.problem for listed in PluginHost(sources).listing() if listed.problem]


def test_components_are_found_by_name_and_by_scheme() -> None:
    found = host()
    assert found.rangefeed_for("paper://desk/db").name == "paper"
    assert found.sink_for("SHELF://room").name == "shelf"
    assert found.encoder("json").name == "json"
    assert [listed.kind for listed in found.listing()] == ["encoder", "rangefeed", "sink"]
    assert {(listed.distribution, listed.version, listed.problem) for listed in found.listing()} == {
        ("cdc-paper", "1.0", "")
    }


def test_hosts_share_nothing() -> None:
    assert PluginHost().listing() == []
    host()
    assert PluginHost().listing() == []


def test_a_plugin_that_fails_to_import_stops_no_other() -> None:
    found = PluginHost([failing(ImportError("No module named 'x'")), source_of(plugin(sink()), "cdc-shelf")])
    assert found.sink_for("shelf://x").name == "shelf"
    broken = [listed for listed in found.listing() if listed.problem]
    assert [(row.distribution, row.version) for row in broken] == [("cdc-broken", "0.3")]
    assert broken[0].problem == "cannot be imported: ImportError: No module named 'x'"


@pytest.mark.parametrize("error", [SystemExit(3), BaseException("a library in Rust panicked")])
def test_a_plugin_that_tries_to_exit_stops_no_other(error: BaseException) -> None:
    found = PluginHost([failing(error), source_of(plugin(sink()), "cdc-shelf")])
    assert found.sink_for("shelf://x").name == "shelf"


def test_a_misspelled_hook_is_named_with_the_right_spelling() -> None:
    @hookimpl
    def cdc_register_sink() -> list[Any]:
        return []

    assert problems(source_of(SimpleNamespace(cdc_register_sink=cdc_register_sink), "cdc-typo")) == [
        "'cdc_register_sink' is not a hook; did you mean 'cdc_register_sinks'?"
    ]


def test_a_hook_without_its_mark_is_a_problem() -> None:
    def cdc_register_sinks() -> list[Any]:
        return []

    (problem,) = problems(source_of(SimpleNamespace(cdc_register_sinks=cdc_register_sinks), "cdc-bare"))
    assert problem == "'cdc_register_sinks' is not marked as a hook; put @cdc_core.hookimpl above it"


def test_a_marked_function_of_any_other_name_is_a_problem() -> None:
    @pluggy.HookimplMarker("cdc_core")
    def register_sinks() -> list[Any]:
        return []

    (problem,) = problems(source_of(SimpleNamespace(register_sinks=register_sinks), "cdc-odd"))
    assert "unknown hook 'register_sinks'" in problem


def test_a_hook_with_arguments_that_it_does_not_get_is_a_problem() -> None:
    @hookimpl
    def cdc_register_sinks(config: object) -> list[Any]:
        return []

    (problem,) = problems(source_of(SimpleNamespace(cdc_register_sinks=cdc_register_sinks), "cdc-args"))
    assert "config" in problem


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "'cdc_register_sinks' returned NoneType None, not a list of SinkRegistration"),
        ("kafka", "'cdc_register_sinks' returned str 'kafka', not a list of SinkRegistration"),
        ([{"name": "kafka"}], "returned dict {'name': 'kafka'}, not SinkRegistration"),
        ([encoder()], "returned EncoderRegistration"),
        ([sink("no good")], "'no good' with name='no good'; expected lowercase letters, digits and . _ + -"),
        ([sink(None)], "SinkRegistration None with name=None; expected str"),  # type: ignore[arg-type]
        ([sink(sink="module.Class")], "sink='module.Class'; expected 'module:Class'"),
        ([sink(reader=5)], "SinkRegistration 'shelf' with reader=5; expected str"),
        ([sink(options="")], "options=''; expected 'module:Class'"),
        ([sink(summary=None)], "summary=None; expected str"),
        ([sink(schemes="kafka")], "schemes='kafka'; expected tuple[str, ...]"),  # type: ignore[arg-type]
        ([sink(schemes=("s3", 3))], "schemes=('s3', 3); expected tuple[str, ...]"),  # type: ignore[arg-type]
        ([sink(schemes=())], "schemes=(); expected one or more URI schemes in lower case, without _"),
        ([sink(schemes=("S3",))], "schemes=('S3',); expected one or more URI schemes in lower case, without _"),
        ([sink(schemes=("my_s3",))], "schemes=('my_s3',); expected one or more URI schemes in lower case, without _"),
        ([sink(output="rows")], "output='rows'; expected 'messages' or 'files'"),
        ([sink(forced=frozenset({"keys"}))], "forced=frozenset({'keys'}); expected 'diff', 'key_in_value', "),
        ([sink(forced={"diff"})], "forced={'diff'}; expected frozenset[str]"),
        ([sink(envelopes=frozenset({"rich"}))], "expected 'wrapped', 'bare', "),
        ([sink(envelopes=("bare",))], "envelopes=('bare',); expected frozenset[str] | None"),
        ([sink(records="yes")], "records='yes'; expected bool"),
        ([sink(secret_path=1)], "secret_path=1; expected bool"),
        ([sink(min_checkpoint_frequency_s=True)], "min_checkpoint_frequency_s=True; expected float"),
        ([sink(min_checkpoint_frequency_s=-1)], "frequency_s=-1; expected a number of seconds, 0 or more"),
    ],
)
def test_what_is_no_good_registration_is_a_problem(returned: Any, complaint: str) -> None:
    @hookimpl
    def cdc_register_sinks() -> Any:
        return returned

    (problem,) = problems(source_of(SimpleNamespace(cdc_register_sinks=cdc_register_sinks), "cdc-wrong"))
    assert complaint in problem


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "lower"}, "name='lower'; expected a name of lowercase letters, digits and _ that SQL does not have"),
        ({"name": "a-b"}, "name='a-b'; expected a name of lowercase letters"),
        ({"function": "module.function"}, "function='module.function'; expected 'module:function'"),
        ({"arguments": ()}, "arguments=(); expected one or more of bool, int8"),
        ({"arguments": (pa.list_(pa.int8()),)}, "expected one or more of bool, int8"),
        ({"arguments": ("int64",)}, "arguments=('int64',); expected tuple[pyarrow.lib.DataType, ...]"),
        ({"returns": pa.timestamp("ns")}, "expected bool, int8"),
        (
            {"deterministic": False},
            "deterministic=False; expected True, because a change that is delivered again must return",
        ),
    ],
)
def test_what_is_no_good_registration_of_a_function_is_a_problem(changes: dict[str, Any], complaint: str) -> None:
    good = FUNCTIONS[0]
    (problem,) = problems(source_of(plugin(dataclasses.replace(good, **changes)), "cdc-wrong"))
    assert complaint in problem
    assert problems(source_of(plugin(dataclasses.replace(good, returns=pa.decimal128(9, 2))), "cdc-right")) == []


def test_functions_are_listed_and_two_of_a_name_are_a_conflict() -> None:
    both = PluginHost([source_of(plugin(FUNCTIONS[0]), "cdc-one"), source_of(plugin(*FUNCTIONS[:2]), "cdc-two")])
    assert both.function("joined") == FUNCTIONS[1]
    assert both.function_names == {"whole_number", "joined"}
    with pytest.raises(PluginConflictError, match="function 'whole_number' is claimed by both cdc-one"):
        both.function("whole_number")
    assert ("function", "joined") in [(row.kind, row.name) for row in both.listing()]


def test_an_encoder_that_writes_nothing_is_a_problem() -> None:
    (problem,) = problems(source_of(plugin(encoder(outputs=frozenset())), "cdc-mute"))
    assert problem == (
        "'cdc_register_encoders' returned EncoderRegistration 'json' with outputs=frozenset(); expected"
        " 'messages' or 'files'"
    )


def test_a_hook_that_raises_is_a_problem() -> None:
    @hookimpl
    def cdc_register_sinks() -> Any:
        yield sink()
        raise KeyError("oops")

    found = PluginHost([source_of(SimpleNamespace(cdc_register_sinks=cdc_register_sinks), "cdc-raise")])
    with pytest.raises(
        PluginLoadError, match=r"of cdc-raise 1\.0 cannot be used: 'cdc_register_sinks' failed: KeyError"
    ):
        found.sink_for("shelf://x")


def test_using_a_component_of_a_faulty_plugin_says_why() -> None:
    @hookimpl
    def cdc_register_encoder() -> list[Any]:
        return []

    faulty = plugin(sink())
    faulty.cdc_register_encoder = cdc_register_encoder
    with pytest.raises(PluginLoadError, match=r"of cdc-half 1\.0 cannot be used: 'cdc_register_encoder' is not a hook"):
        PluginHost([source_of(faulty, "cdc-half")]).sink_for("shelf://x")


def test_a_name_that_two_distributions_claim_names_both() -> None:
    found = PluginHost(
        [source_of(plugin(encoder()), "cdc-one", "1.0"), source_of(plugin(encoder(), sink()), "cdc-two", "2.0")]
    )
    with pytest.raises(PluginConflictError) as raised:
        found.encoder("json")
    assert str(raised.value) == (
        "encoder 'json' is claimed by both cdc-one 1.0 and cdc-two 2.0; uninstall one of them: "
        "pip uninstall cdc-one or cdc-two"
    )
    assert found.sink_for("shelf://x").name == "shelf"
    assert [listed.problem for listed in found.listing() if listed.kind == "encoder"] == [
        "cdc-two 2.0 claims the name 'json' too",
        "cdc-one 1.0 claims the name 'json' too",
    ]


def test_a_scheme_that_two_distributions_claim_is_a_conflict_and_their_other_schemes_are_not() -> None:
    one, two = sink("one", schemes=("s3", "file")), sink("two", schemes=("s3", "disk"))
    found = PluginHost([source_of(plugin(one), "cdc-one"), source_of(plugin(two), "cdc-two")])
    with pytest.raises(
        PluginConflictError, match=r"begin with 's3://' is claimed by both cdc-one 1\.0 and cdc-two 1\.0"
    ):
        found.sink_for("s3://bucket")
    assert found.sink_for("file:///x").name == "one"
    assert found.sink_for("disk://x").name == "two"


def test_one_name_in_two_kinds_is_no_conflict() -> None:
    found = host(rangefeed("kafka", schemes=("kafka",)), sink("kafka", schemes=("kafka",)))
    assert found.sink_for("kafka://x").name == "kafka"
    assert found.rangefeed_for("kafka://x").name == "kafka"


def test_a_name_that_one_distribution_registers_twice_is_a_conflict() -> None:
    with pytest.raises(PluginConflictError, match=r"encoder 'json' is registered twice by cdc-paper 1\.0"):
        host(encoder(), encoder()).encoder("json")


@pytest.mark.parametrize(
    ("kind", "word"), [("sink", "https"), ("sink", "quarry"), ("encoder", "ink"), ("rangefeed", "mysql")]
)
def test_an_unknown_component_names_no_package_that_may_belong_to_nobody(kind: str, word: str) -> None:
    with pytest.raises(UnknownPluginError) as raised:
        host().component(kind, word)
    assert "; install the package that registers it" in str(raised.value)
    assert "cdc-" not in str(raised.value)


@pytest.mark.parametrize(
    ("find", "package"),
    [
        (lambda: PluginHost().rangefeed_for("postgres://x"), "cdc-rangefeed-postgres"),
        (lambda: host().sink_for("s3://x"), "cdc-sink-cloudstorage"),
        (lambda: host().component("sink", "kafka"), "cdc-sink-kafka"),
        (lambda: host().encoder("avro"), "cdc-encoder-avro"),
        (lambda: host(encoder("cvs")).encoder("csv"), "cdc-encoder-csv"),
    ],
)
def test_a_component_of_this_project_is_named_with_its_package(find: Callable[[], object], package: str) -> None:
    with pytest.raises(UnknownPluginError, match=f"; run pip install {package}$"):
        find()


def test_the_packages_of_this_project_are_those_that_register_it() -> None:
    registered: dict[str, set[str]] = {}
    for row in PluginHost.load().listing():
        registered.setdefault(row.distribution, set()).update((row.kind, row.name, *row.schemes))
    assert {name: set(words) for name, words in DISTRIBUTIONS.items()} == registered


def test_a_misspelled_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownPluginError, match=r"no encoder 'jsn'; did you mean 'json'\?; installed: json$"):
        host().encoder("jsn")
    with pytest.raises(UnknownPluginError, match=r"'shlef://'; did you mean 'shelf'\?; installed: shelf$"):
        host().sink_for("shlef://x")


def test_a_wanted_plugin_that_could_not_be_imported_says_why() -> None:
    found = PluginHost([failing(ImportError("No module named 'confluent_kafka'"), "cdc-sink-kafka")])
    with pytest.raises(PluginLoadError, match=r"of cdc-sink-kafka 0\.3 cannot be used: .*confluent_kafka"):
        found.sink_for("kafka://x")
    with pytest.raises(UnknownPluginError, match=r"could not be loaded: cdc-sink-kafka 0\.3 \(see 'cdc plugins'\)"):
        found.sink_for("other://x")
    with pytest.raises(UnknownPluginError, match=r"^(?!.*did you mean)"):  # though a few letters are the same
        host(sink(schemes=("azure-storage",))).sink_for("strange://x")


def test_a_plugin_that_registers_nothing_is_listed() -> None:
    (listed,) = PluginHost([source_of(SimpleNamespace(), "cdc-empty")]).listing()
    assert (listed.kind, listed.name, listed.problem) == ("", "cdc_empty", "registers nothing")
    with pytest.raises(UnknownPluginError, match=r"could not be loaded: cdc-empty 1\.0"):
        PluginHost([source_of(SimpleNamespace(), "cdc-empty")]).sink_for("shelf://x")


def test_one_module_published_by_two_distributions_is_a_conflict() -> None:
    shared = plugin(sink())
    found = PluginHost([source_of(shared, "cdc-one"), source_of(shared, "cdc-two")])
    with pytest.raises(PluginConflictError, match=r"both cdc-one 1\.0 and cdc-two 1\.0"):
        found.sink_for("shelf://x")


def test_installed_plugins_are_found_through_their_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        "cdc-sink-shelf",
        "4.2",
        module="cdc_test_shelf_plugin",
        source=GOOD_SINK.format(name="shelf", summary="A shelf"),
    )
    monkeypatch.syspath_prepend(tmp_path)
    listed = [row for row in PluginHost.load().listing() if row.name == "shelf"]
    assert [(row.distribution, row.version, row.problem) for row in listed] == [("cdc-sink-shelf", "4.2", "")]


def test_cdc_plugins_lists_broken_distributions_and_exits_0(tmp_path: Path) -> None:
    install(tmp_path, "cdc-broken", "0.1", module="cdc_t_broken", source="import no_such_module")
    install(
        tmp_path,
        "cdc-typo",
        "0.2",
        module="cdc_t_typo",
        source="""
            from cdc_core import hookimpl

            @hookimpl
            def cdc_register_sinkz():
                return []
        """,
    )
    install(tmp_path, "cdc-wrong", "0.3", module="cdc_t_wrong", source=WRONG_TYPE)
    install(tmp_path, "cdc-one", "1.0", module="cdc_t_one", source=GOOD_SINK.format(name="pile", summary="One"))
    install(tmp_path, "cdc-two", "2.0", module="cdc_t_two", source=GOOD_SINK.format(name="pile", summary="Two"))
    good = textwrap.dedent(GOOD_SINK).format(name="well", summary="Good")
    odd = "tool >=1.0.*"  # an earlier pip has installed it
    install(tmp_path, "cdc-good", "3.0", module="cdc_t_good", source="print('hello')\n" + good, requires=odd)
    later = GOOD_SINK.format(name="later", summary="Later")
    install(tmp_path, "cdc-later", "9.1", module="cdc_t_later", source=later, requires="cdc_core[spark]>=9,<10")
    group = "cdc_core.commands"
    install(tmp_path, "cdc-tool", "9.1", module="cdc_t_tool", source="", group=group, requires="cdc-core<0.1")
    done = subprocess.run(
        [sys.executable, "-m", "cdc_core", "plugins"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "hello\n"  # not among the output, which may be JSON
    rows = {row[3]: row for row in (line.split(maxsplit=5) for line in done.stdout.splitlines())}
    assert rows["cdc-broken"][5] == "PROBLEM: cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    assert rows["cdc-typo"][5] == "PROBLEM: 'cdc_register_sinkz' is not a hook; did you mean 'cdc_register_sinks'?"
    assert rows["cdc-wrong"][5] == "PROBLEM: 'cdc_register_sinks' returned int 5, not a list of SinkRegistration"
    wrong = "PROBLEM: {0} 9.1 requires {1}, but cdc-core {2} is installed; run pip install --upgrade cdc-core {0}"
    core = version("cdc-core")
    assert rows["cdc-later"][5] == wrong.format("cdc-later", "cdc_core[spark]<10,>=9", core)
    assert rows["cdc-tool"][5] == wrong.format("cdc-tool", "cdc-core<0.1", core)
    assert rows["cdc-one"][5] == "PROBLEM: cdc-two 2.0 claims the name 'pile' too"
    assert rows["cdc-two"][5] == "PROBLEM: cdc-one 1.0 claims the name 'pile' too"
    assert rows["cdc-good"] == ["sink", "well", "well", "cdc-good", "3.0", "Good"]


def test_components_stay_unloaded() -> None:
    assert host(sink(sink="no_such_module:Sink")).sink_for("shelf://x").sink == "no_such_module:Sink"


def test_threads_that_load_plugins_at_the_same_time_leave_the_standard_output() -> None:
    begun: list[object] = []

    def load() -> object:
        begun.append(None)
        for _ in range(300 * len(begun)):  # the first to begin is the first to end
            Path(__file__).read_bytes()  # lets other threads run
        return plugin()

    before = sys.stdout
    at_once(lambda: PluginHost([Published(name="slow", load=load, distribution="cdc-slow", version="1")]), times=2)
    assert sys.stdout is before
