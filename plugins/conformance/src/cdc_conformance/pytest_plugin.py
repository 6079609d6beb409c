"""The pytest plugin: its options, the suite of the component that they name, and the guard over every suite."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(f"cdc_conformance.{part}" for part in ("sinks", "encoders", "rangefeeds", "validators", "rows", "workload"))
)

from cdc_conformance.components import suite_for  # noqa: E402
from cdc_conformance.given import Given, Place, one_given  # noqa: E402
from cdc_conformance.guard import complaint  # noqa: E402
from cdc_conformance.installed import FILE, GIVEN, SuiteModule, module_of, suite_class  # noqa: E402
from cdc_conformance.promises import MARK, suite_of  # noqa: E402
from cdc_conformance.reporting import Reporting  # noqa: E402
from cdc_core.errors import ConfigError  # noqa: E402
from cdc_core.plugins.host import PluginHost  # noqa: E402

__all__ = ["REPORTING"]

REPORTING = "cdc-reporting"
"""Name under which a run's `Reporting` is registered with pytest."""

_FLAG = "--cdc-"
_PACKAGE = "cdc_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cdc-conformance", "promises of plugins for cdc-core")
    for kind in ("sink", "encoder", "rangefeed"):
        group.addoption(
            f"{_FLAG}{kind}",
            metavar="NAME",
            help=f"prove the installed {kind} NAME; together with --pyargs {_PACKAGE}",
        )
    group.addoption(
        f"{_FLAG}uri",
        metavar="URI",
        help="where: every promise of a sink gets a place of its own, named by the word that replaces {unique} in URI; "
        "a rangefeed's tables are created there and dropped",
    )
    group.addoption(
        f"{_FLAG}option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the component, of the sink's encoder or of the changefeed; may hold {unique}; repeatable",
    )
    group.addoption(f"{_FLAG}format", metavar="ENCODER", help="the encoder that a sink is proved with (json)")
    group.addoption(
        f"{_FLAG}capability",
        metavar="NAME",
        action="append",
        default=[],
        help="what the component can do beyond what every one must: its promises are asked for too; repeatable",
    )

    group.addoption(
        f"{_FLAG}report", metavar="FILE", type=Path, help="write what became of each promise of all suites as JSON"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}(capability, reason): the promise only holds where it is declared")
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
    config.pluginmanager.register(Reporting(config, path=report, secrets=secrets, shown=shown), REPORTING)
    if named is None and config.option.pyargs and _PACKAGE in config.args:
        raise pytest.UsageError(
            f"say what is to be proved, such as {_FLAG}sink NAME {_FLAG}uri URI; also {_FLAG}encoder, {_FLAG}rangefeed"
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
    suite = suite_for(kind)
    given.check(
        PluginHost.load(),
        known_capabilities=suite.known_capabilities,
        fixtures=suite.capability_fixtures,
        flag=_FLAG,
    )
    return given


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path != FILE or parent.session.isinitpath(file_path):  # else pytest itself asks for the module
        return None
    return pytest_pycollect_makemodule(file_path, parent)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path != FILE:
        return None
    given = parent.config.stash.get(GIVEN, None)
    return SuiteModule.of(parent, module_of() if given is None else module_of(suite_class(given)))


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | None:
    if not inspect.isclass(obj) or suite_of(obj) is None or not collector.classnamefilter(name):
        return None
    wrong = complaint(obj, module_marks=getattr(collector.obj, "pytestmark", ()))
    return None if wrong is None else Refused.of(collector, name, wrong)


class Refused(pytest.Class):
    """A test class that cannot be collected, with what is wrong with it."""

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
    """The URI and the options that the command line gives, for one promise."""
    return cdc_given.place()
