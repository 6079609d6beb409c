"""The pytest plugin: its options, the suite of the component that they name, and which promises are collected."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(f"cdc_conformance.{part}" for part in ("sinks", "encoders", "rangefeeds", "validators", "rows", "workload"))
)

from cdc_conformance.components import suite_for  # noqa: E402
from cdc_conformance.given import Given, Place, one_given  # noqa: E402
from cdc_conformance.guard import complaint  # noqa: E402
from cdc_conformance.installed import FILE, GIVEN, SuiteModule, module_of, suite_class  # noqa: E402
from cdc_conformance.promises import APPLIES, REQUIRES, suite_of, why_not_declared  # noqa: E402
from cdc_conformance.reporting import NAME, NOT_DECLARED, Reporting  # noqa: E402
from cdc_core.errors import ConfigError  # noqa: E402
from cdc_core.plugins.host import PluginHost  # noqa: E402

Made = pytest.Item | pytest.Collector | list[pytest.Item | pytest.Collector] | None
"""What pytest makes of a name in a module or class."""

_FLAG = "--cdc-"
_PACKAGE = "cdc_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cdc-conformance", "promises of plugins for cdc-core")
    for kind in ("sink", "encoder", "rangefeed"):
        group.addoption(
            f"{_FLAG}{kind}", metavar="NAME", help=f"test the installed {kind} NAME; use it with --pyargs {_PACKAGE}"
        )
    group.addoption(
        f"{_FLAG}uri",
        metavar="URI",
        help="URI of the destination or source. For a sink, {unique} is replaced by a different word for each promise."
        " For a rangefeed, the tests create and drop tables there",
    )
    group.addoption(
        f"{_FLAG}option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of the component, of the sink's encoder or of the changefeed; may contain {unique}; repeatable",
    )
    group.addoption(f"{_FLAG}format", metavar="ENCODER", help="encoder to test a sink with (default: json)")
    group.addoption(
        f"{_FLAG}capability",
        metavar="NAME",
        action="append",
        default=[],
        help="declare a capability of the component, so that its promises are tested too; repeatable",
    )
    group.addoption(
        f"{_FLAG}report", metavar="FILE", type=Path, help="write the outcome of every promise of all suites as JSON"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{REQUIRES}(capability, reason): a promise of components that declare it")
    config.addinivalue_line("markers", f"{APPLIES}(condition): a promise of components that meet the condition")
    config.stash[NOT_DECLARED] = []
    asked = {kind: config.getoption(f"cdc_{kind}") for kind in ("sink", "encoder", "rangefeed")}
    try:
        named = one_given(asked, flag=_FLAG)
        if named is not None:
            config.stash[GIVEN] = _given(config, *named)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    report = config.getoption("cdc_report")
    if report is not None and not report.absolute().parent.is_dir():
        raise pytest.UsageError(f"{_FLAG}report: there is no directory {report.absolute().parent}")
    given = config.stash.get(GIVEN, None)
    secrets = frozenset() if given is None else given.secrets(PluginHost.load())
    shown = given is not None or report is not None
    config.pluginmanager.register(Reporting(config, path=report, secrets=secrets, shown=shown), NAME)
    if named is None and config.option.pyargs and _PACKAGE in config.args:
        raise pytest.UsageError(
            f"--pyargs {_PACKAGE} needs {_FLAG}sink NAME, {_FLAG}encoder NAME or {_FLAG}rangefeed NAME"
        )


def _given(config: pytest.Config, kind: str, name: str) -> Given:
    given = Given.parsed(
        kind,
        name,
        uri=config.getoption("cdc_uri"),
        options=config.getoption("cdc_option"),
        format_=config.getoption("cdc_format"),
        capabilities=config.getoption("cdc_capability"),
    )
    given.check(PluginHost.load(), suite_for(kind), flag=_FLAG)
    return given


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path != FILE or parent.session.isinitpath(file_path):  # pytest collects it as a module
        return None
    return pytest_pycollect_makemodule(file_path, parent)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path != FILE:
        return None
    given = parent.config.stash.get(GIVEN, None)
    return SuiteModule.of(parent, module_of() if given is None else module_of(suite_class(given)))


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Generator[None, Made, Made]:
    """Refuse test classes that break a rule of their suite, and leave out promises that are not declared."""
    made = yield
    if isinstance(made, pytest.Class) and inspect.isclass(obj) and suite_of(obj) is not None:
        wrong = complaint(obj, module_marks=getattr(collector.obj, "pytestmark", ()))
        return made if wrong is None else Refused.of(collector, name, wrong)
    return [item for item in made if _is_declared(item)] if isinstance(made, list) else made


def _is_declared(item: pytest.Item | pytest.Collector) -> bool:
    reason = why_not_declared(item) if isinstance(item, pytest.Function) else None
    if reason is not None and isinstance(item, pytest.Function):
        item.config.stash[NOT_DECLARED].append((item, reason))
    return reason is None


class Refused(pytest.Class):
    """A test class that is not collected because something is wrong with it."""

    wrong: str

    @classmethod
    def of(cls, parent: pytest.Collector, name: str, wrong: str) -> Refused:
        refused: Refused = cls.from_parent(parent, name=name)
        refused.wrong = wrong
        return refused

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        raise self.CollectError(self.wrong)


@pytest.fixture(scope="session")
def cdc_given(pytestconfig: pytest.Config) -> Given:
    """The component that the command line names."""
    return pytestconfig.stash[GIVEN]


@pytest.fixture
def cdc_place(cdc_given: Given) -> Place:
    """The URI and the options of the command line, for one promise."""
    return cdc_given.place()
