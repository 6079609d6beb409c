"""What the modules of a plugin import, and when."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

from cdc_conformance.processes import imported_by
from cdc_conformance.sinks.rig import SinkRig
from cdc_core import ConfigError
from cdc_core.plugins.entry_points import PLUGINS, Published
from cdc_core.plugins.host import PluginHost

__all__ = ["Packaging"]

_COMMAND_LINE = ("cdc_core", "cdc_core.cli.main", "cdc_core.config.resolve")
_UNWELCOME = {"pytest", "_pytest", "pyspark"}


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
