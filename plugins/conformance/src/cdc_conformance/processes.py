"""New Python processes that find the same modules as this one, wherever it was started."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import ParamSpec, TypeVar

from cdc_conformance.components import installed, listed
from cdc_core.plugins.entry_points import PLUGINS
from cdc_core.registrations import Registration

P = ParamSpec("P")
T = TypeVar("T")

_CORE = ("cdc_core", "cdc_core.sink_context", "cdc_core.cli.main", "cdc_core.config.resolve")
"""What commands import, and plugins with the names of the core."""
_UNWELCOME = {"pytest", "_pytest", "pyspark"}


class Peer:
    """Another process that calls functions, as a worker does. It starts on first use, and ends with this process.

    *setup* is Python that it runs at its start, *environment* what differs in its environment.
    """

    def __init__(self, setup: str = "", **environment: str) -> None:
        self._program = f"{setup}\nfrom {__name__} import serve\nserve()"
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what *function* returns there. Everything is pickled.

        Raises: AssertionError with the traceback when it raised an error, or when the process has ended. The next call
        starts another one.
        """
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((sys.path, pickle.dumps((function, args, kwargs))), process.stdin)
            process.stdin.flush()
            answer, failure = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            self._process = None
            raise AssertionError(f"the other process ended with exit code {process.wait()}; see its stderr") from None
        assert not failure, f"this fails in another process:\n{failure}"
        found: T = pickle.loads(answer)
        return found

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = _environment(**self._environment)
            self._process = subprocess.Popen(
                _command(self._program), env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            atexit.register(self._process.communicate)
        return self._process


def serve() -> None:
    """Answer the calls of a `Peer` until its process ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is not an answer
    while True:
        try:
            sys.path[:], request = pickle.load(requests)
        except EOFError:
            return
        answer: tuple[bytes, str]
        try:
            function, args, kwargs = pickle.loads(request)
            answer = pickle.dumps(function(*args, **kwargs)), ""
        except Exception:  # a plugin may raise anything
            answer = b"", traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


def assert_light(kind: str, registration: Registration) -> None:
    """Require that the modules of hooks and options import only each other, the standard library and the core."""
    __tracebackhide__ = True
    modules = [registration.options.partition(":")[0]]
    origin = listed(kind, registration, installed())
    modules += [
        each.module
        for each in entry_points(group=PLUGINS)
        if origin and each.dist and each.dist.name == origin.distribution
    ]
    own = {"cdc_core", *(name.partition(".")[0] for name in modules)}
    foreign = _imported_by(*modules) - own - set(sys.stdlib_module_names)
    assert not foreign, f"importing {' and '.join(modules)} also imports {sorted(foreign)}"


def assert_works_alone(*targets: str) -> None:
    """Require that the modules of *targets*, such as `module:Class`, import no test framework and no Spark."""
    __tracebackhide__ = True
    modules = [target.partition(":")[0] for target in targets if target]
    unwelcome = _imported_by(*modules) & _UNWELCOME
    assert not unwelcome, f"importing {' and '.join(modules)} also imports {sorted(unwelcome)}"


def _imported_by(*modules: str) -> set[str]:
    """Return the top-level names of what a new process loads for *modules* in addition to what the core loads."""
    return {name.partition(".")[0] for name in _loaded(*modules) - _loaded(*_CORE)}


@cache
def _loaded(*modules: str) -> frozenset[str]:
    """Return all modules of a new process that imports *modules*."""
    program = "\n".join([*(f"import {module}" for module in modules), "import sys", "print(*sys.modules)"])
    done = subprocess.run(_command(program), capture_output=True, text=True, check=False, env=_environment())
    assert done.returncode == 0, f"cannot import {' and '.join(modules)}: {done.stderr.strip()[-500:]}"
    return frozenset(done.stdout.split())


def _command(program: str) -> list[str]:
    """Return the command line of a Python that does not search for modules in the current directory."""
    return [sys.executable, "-P", "-c", program]


def _environment(**changes: str) -> dict[str, str]:
    """Return the environment for such a Python: this one's search path for modules, and *changes*."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **changes}
