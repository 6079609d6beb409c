"""What a plugin's modules import, and when."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points

from cdc_conformance.processes import command, environment
from cdc_conformance.sinks.rig import SinkRig
from cdc_core.errors import ConfigError
from cdc_core.plugins.host import GROUP, PluginHost
from cdc_core.plugins.loading import PluginSource

__all__ = ["Packaging"]

_UNWELCOME = ("pytest", "_pytest", "pyspark")


class Packaging:
    """Promises about imports."""

    def test_registration_and_options_import_no_client_library(self, rig: SinkRig) -> None:
        """The module with the hooks and the one with the options import the core, the standard library, and each other.

        They are loaded by every `cdc` command and on every driver, whichever sink is used there. Import clients in the
        module of the sink, which is loaded by its name when it is needed.
        """
        registration = rig.registration
        modules = [registration.options.partition(":")[0], *_plugin_modules(registration.name)]
        own = {name.partition(".")[0] for name in modules}
        foreign = _imported(*modules) - own - set(sys.stdlib_module_names)
        assert not foreign, f"importing {' and '.join(modules)} also imports {sorted(foreign)}"

    def test_the_sink_imports_neither_pytest_nor_pyspark(self, rig: SinkRig) -> None:
        """The module of the sink runs on executors: it needs no test framework, and no Spark, which is the engine's."""
        module = rig.registration.target.partition(":")[0]
        unwelcome = _imported(module) & set(_UNWELCOME)
        assert not unwelcome, f"importing {module} also imports {sorted(unwelcome)}"


def _plugin_modules(sink: str) -> list[str]:
    """Return the modules of the installed plugins that register *sink*."""
    found = []
    for entry_point in entry_points(group=GROUP):
        try:
            PluginHost([PluginSource.of_entry_point(entry_point)]).component("sink", sink)
        except ConfigError:
            continue
        found.append(entry_point.module)
    return found


@cache
def _imported(*modules: str) -> set[str]:
    """Return the top-level modules that importing *modules* adds to those of the core, in a process of its own."""
    code = _CODE.format(modules=", ".join(modules))
    run = subprocess.run(command("-c", code), capture_output=True, text=True, check=False, env=environment())
    assert run.returncode == 0, f"{' and '.join(modules)} cannot be imported: {run.stderr.strip()[-500:]}"
    return set(run.stdout.split())


_CODE = """
import sys
import cdc_core, cdc_core.cli.main, cdc_core.config.resolve
before = set(sys.modules)
import {modules}
print(*{{name.partition(".")[0] for name in set(sys.modules) - before}})
"""
