"""Options, what passes from process to process, and what the modules of a plugin import."""

from __future__ import annotations

import pickle
import sys
from importlib.metadata import entry_points

from cdc_conformance.processes import imported_by
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS
from cdc_core import ConfigError, OptionError
from cdc_core.options import describe, option_names
from cdc_core.plugins.entry_points import PLUGINS, Published
from cdc_core.plugins.host import PluginHost

__all__ = ["Options", "Packaging"]

_NONSENSE = ("no-such-value", "-1", "0", "", "99999999999999999999", "\x00")
_COMMAND_LINE = ("cdc_core", "cdc_core.cli.main", "cdc_core.config.resolve")
_UNWELCOME = {"pytest", "_pytest", "pyspark"}


class Options:
    """Promises about the options class."""

    def test_a_misspelt_option_is_refused_with_a_hint(self, rig: SinkRig) -> None:
        """An unknown URI parameter raises an OptionError that suggests the right name.

        If a parameter were ignored, the user would believe that a default had been changed.
        """
        known = option_names(rig.options_class())
        error = failure_of(lambda: rig.feed(parameters={"zz-no-such-option": "1"}))
        assert isinstance(error, OptionError), f"an unknown option must raise OptionError, not {error!r}"
        for name in known:
            typo = _misspelt(name)
            error = failure_of(lambda typo=typo: rig.feed(parameters={typo: "1"}))  # type: ignore[misc]
            assert isinstance(error, OptionError), f"'{typo}' for '{name}' must raise OptionError, not {error!r}"
            assert "did you mean" in str(error), f"the error for '{typo}' must suggest '{name}', but it says: {error}"

    def test_every_option_is_documented(self, rig: SinkRig) -> None:
        """Each option has a text `option(…, doc=…)`, which tables, `cdc` and error messages show."""
        bare = [row.name for row in describe(rig.options_class()) if not row.doc.strip()]
        assert not bare, f"these options have no doc: {bare}"

    def test_any_value_of_an_option_is_accepted_or_refused(self, rig: SinkRig) -> None:
        """A wrong type, nonsense, zero, a negative, huge or empty value is accepted or raises OptionError, at once.

        Declare options with types that `cdc_core.options` parses, and raise ValueError in `__post_init__`: it becomes
        the OptionError that names the option. Users cannot understand any other exception.
        """
        for name in option_names(rig.options_class()):
            for value in _NONSENSE:
                error = failure_of(lambda name=name, value=value: rig.feed(parameters={name: value}))  # type: ignore[misc]
                assert error is None or isinstance(error, OptionError), (
                    f"{name}={value!r} must be accepted or raise OptionError, not {error!r}"
                )

    def test_options_survive_pickle(self, rig: SinkRig) -> None:
        """Parsed options and the changefeed that holds them are pickled for other processes, and are equal there."""
        rig.watch(ORDERS)
        options = rig.feed().sink_context().options
        error = failure_of(lambda: pickle.dumps(options))
        assert error is None, f"options must be picklable, but pickle raised {error!r}"
        assert pickle.loads(pickle.dumps(options)) == options, (
            "options must be equal after pickle: make the class a dataclass"
        )
        sink = pickle.loads(pickle.dumps(rig.feed())).open_sink()
        assert type(sink) is type(rig.open_sink()), "the sink's class must be importable by its name from its module"


def _misspelt(name: str) -> str:
    """Return *name* with two neighbouring letters swapped."""
    for place in range(len(name) // 2, len(name) - 1):
        if name[place] != name[place + 1]:
            return name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return name + "x"


class Packaging:
    """Promises about imports."""

    def test_registration_and_options_import_no_client_library(self, rig: SinkRig) -> None:
        """The modules of the hooks and of the options import only the core, the standard library and each other.

        Every `cdc` command and every driver loads them, whatever sink is used there. Import clients in the modules of
        the sink's parts, which are loaded by name when they are needed.
        """
        registration = rig.registration
        modules = [registration.options.partition(":")[0], *_plugin_modules(registration.name)]
        own = {"cdc_core", *(name.partition(".")[0] for name in modules)}
        foreign = imported_by(*modules, beside=_COMMAND_LINE) - own - set(sys.stdlib_module_names)
        assert not foreign, f"importing {' and '.join(modules)} also imports {sorted(foreign)}"

    def test_the_sink_imports_neither_pytest_nor_pyspark(self, rig: SinkRig) -> None:
        """Sink, resolved sink and destination run where no test framework is, and leave Spark to the engine."""
        registration = rig.registration
        targets = registration.sink, registration.resolved_sink, registration.destination
        modules = [target.partition(":")[0] for target in targets]
        unwelcome = imported_by(*modules, beside=_COMMAND_LINE) & _UNWELCOME
        assert not unwelcome, f"importing {', '.join(modules)} also imports {sorted(unwelcome)}"


def _plugin_modules(sink: str) -> list[str]:
    """Return the modules of the installed plugins that register *sink*."""
    found = []
    for entry_point in entry_points(group=PLUGINS):
        try:
            PluginHost([Published.of_entry_point(entry_point)]).component("sink", sink)
        except ConfigError:
            continue
        found.append(entry_point.module)
    return found
