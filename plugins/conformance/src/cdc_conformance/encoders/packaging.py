"""Promises about what surrounds an encoder: options, secrets, `check`, pickling, imports."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import pytest

from cdc_conformance.components import origin_of
from cdc_conformance.encoders.effects import effects
from cdc_conformance.encoders.messages import history, written
from cdc_conformance.encoders.rig import EncoderRig
from cdc_conformance.encoders.samples import Sample
from cdc_conformance.processes import command, environment
from cdc_conformance.rows import INT8, TEXT, table
from cdc_core import CdcError, Decoder, Encoder, EncoderContext, OptionError
from cdc_core.options import describe
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import GROUP, PluginHost

__all__ = ["Packaging"]

_ORDERS = table("orders", {"id": INT8, "note": TEXT})
_SECRET = "sesame"
_STRANGERS = ("pyspark", "pytest")


class Packaging:
    """What happens before the first row."""

    def test_the_constructor_has_no_side_effects(self, rig: EncoderRig) -> None:
        """Building an encoder or decoder connects to nothing, writes nothing and starts nothing.

        `cdc check`, the driver and every worker build them. What needs a connection makes it when rows come.
        """
        for form in rig.forms():
            job = rig.job(form)
            cls, context = job.encoder.load(Encoder), rig.context(form)
            with effects() as found:
                cls(context)
            assert not found, f"{form}: the encoder's constructor did {'; '.join(found)}"
            if rig.registration.decoder:
                reader = load_class(rig.registration.decoder, owner="decoder", base=Decoder)
                with effects() as found:
                    reader(context)
                assert not found, f"{form}: the decoder's constructor did {'; '.join(found)}"

    def test_a_check_changes_nothing(self, rig: EncoderRig, topic: str) -> None:
        """`check` may be called at any time and any number of times: rows are written the same with it or without.

        It writes no file and starts no process; asking a service is allowed.
        """
        for form in rig.full_forms():
            batch = history(_ORDERS)
            plain, checked = rig.encoder(form), rig.encoder(form)
            with effects() as found:
                checked.check([(_ORDERS, topic)])
            done = [what for what in found if not what.startswith(("socket.", "thread "))]
            assert not done, f"{form}: check did {'; '.join(done)}"
            checked.check([])
            checked.check([(table("others", {"id": INT8}), f"{topic}_others"), (_ORDERS, topic)])
            same = written(checked, batch, topic, form) == written(plain, batch, topic, form)
            assert same, f"{form}: after a check the same rows have other bytes"

    def test_a_check_refuses_a_column_by_name(self, rig: EncoderRig, samples: Sequence[Sample], topic: str) -> None:
        """`check` accepts a table with any kind of column, or raises ConfigError that names table and column.

        The user sees this message before anything runs, and must know what to leave out. The refused column is the
        second of three.
        """
        forms = [form for output in rig.outputs for form in rig.forms(output=output)[:1]]
        for form in forms:
            for sample in samples:
                schema = table("checked", {"id": INT8, "peculiar": sample.type, "last": TEXT})
                error = rig.refusal(form, schema, f"{topic}_{sample.name}")
                if error is not None:
                    for what, word in (("table", str(schema.name)), ("column", "peculiar")):
                        assert word in str(error), (
                            f"{form}: check refuses a column of type {sample.type.source}, but does not name the "
                            f"{what} '{word}': {error}"
                        )

    def test_options_are_documented(self, rig: EncoderRig) -> None:
        """Options are a frozen dataclass, and each has a `doc` of one or two whole sentences and no odd name.

        The tables of the documentation are made of it.
        """
        cls = _options_class(rig)
        assert dataclasses.is_dataclass(cls), f"{cls.__name__} must be a dataclass"
        assert cls.__dataclass_params__.frozen, f"{cls.__name__} must be frozen: @dataclass(frozen=True)"  # type: ignore[attr-defined]
        for row in describe(cls):
            assert row.doc.strip().endswith((".", "!", "?")), (
                f"option '{row.name}' of {cls.__name__} is declared without a sentence that documents it: "
                f"option(…, doc='…'); it has {row.doc!r}"
            )
            assert row.name.isidentifier(), f"option {row.name!r} of {cls.__name__} has no name that can be written"

    def test_wrong_options_are_refused(self, rig: EncoderRig) -> None:
        """An option that is not known, or whose value has another type than declared, raises OptionError by its name.

        Options have types that `cdc_core.options` can parse. When this fails, look for an annotation such as `Any` or
        `list`.
        """
        (form, *_) = rig.forms()
        wrong: dict[str, Any] = {row.name: object() for row in describe(_options_class(rig)) if row.type[:4] != "list"}
        for name, value in {**wrong, "no_such_option_anywhere": "1"}.items():
            said = ""
            try:
                rig.context(form, **{name: value})
            except OptionError as error:
                said = str(error)
            except Exception as error:
                pytest.fail(f"option '{name}' with a value that cannot be raises {error!r}, not OptionError")
            assert said, f"option '{name}' takes {value!r}, which is no value for it; it must raise OptionError"
            assert f"'{name}'" in said, f"the error about option '{name}' does not name it: {said}"

    def test_secrets_are_not_shown(self, rig: EncoderRig, secret_options: Mapping[str, Any], topic: str) -> None:
        """No secret option's value stands in `repr` of encoder, context or options, or in an error.

        Passwords in URLs count. The service that the made-up values name is out of reach, and the error of that shows
        nothing either.
        """
        names = [row.name for row in describe(_options_class(rig)) if row.secret]
        values = dict.fromkeys(names, f"http://alice:{_SECRET}%2F@127.0.0.1:9") | dict(secret_options)
        if not values:
            return
        for form in rig.forms():
            said = []
            try:
                job = rig.job(form, **values)
                context = rig.context(form, **values)
                encoder = rig.encoder(form, **values)
                said += [repr(job), repr(context), str(context.options), repr(encoder), str(encoder)]
                encoder.check([(_ORDERS, topic)])
                written(encoder, history(_ORDERS), topic, form)
            except CdcError as error:
                said += [str(error), repr(error)]
            for text in said:
                assert _SECRET not in text, f"{form}: a secret shows in {text}"

    def test_what_encoders_are_built_from_survives_pickle(self, rig: EncoderRig, topic: str) -> None:
        """Context and options go to other processes; an encoder that is built there writes the same."""
        for form in rig.forms():
            context = rig.context(form)
            copy = pickle.loads(pickle.dumps(context))
            assert isinstance(copy, EncoderContext)
            cls = rig.job(form).encoder.load(Encoder)
            first, second = (written(rig.guarded(cls(each)), history(_ORDERS), topic, form) for each in (context, copy))
            assert first == second, f"{form}: an encoder built from a pickled context writes other bytes"

    def test_imports_are_light(self, rig: EncoderRig) -> None:
        """The plugin's module loads nothing but the core, and the encoder loads neither pytest nor pyspark.

        Every `cdc` command imports the plugin's module, and a worker without pytest or Spark imports the encoder. When
        this fails, import in functions what few need, and name classes by "module:Class".
        """
        registration = rig.registration
        target, options, decoder = (
            text.partition(":")[0] for text in (registration.target, registration.options, registration.decoder)
        )
        for plugin in _plugin_modules(origin_of("encoder", registration, PluginHost.load()).distribution):
            found = _strangers_of(plugin)
            assert not found, (
                f"importing the plugin's module {plugin} imports {', '.join(found)}; it may import nothing but itself, "
                "Python's own modules and cdc_core"
            )
        modules = tuple(dict.fromkeys(module for module in (options, target, decoder) if module))
        strangers = _imported_by(modules, _STRANGERS)
        assert not strangers, f"importing {' and '.join(modules)} imports {' and '.join(strangers)}"


def _options_class(rig: EncoderRig) -> type[Any]:
    (form, *_) = rig.forms()
    return rig.job(form).encoder.load_options()


def _plugin_modules(distribution: str | None) -> list[str]:
    """Return the modules through which *distribution* publishes its plugins."""
    if distribution is None:
        return []
    found = (entry for entry in entry_points(group=GROUP) if entry.dist is not None and entry.dist.name == distribution)
    return [entry.module for entry in found]


@cache
def _strangers_of(module: str) -> list[str]:
    """Return what importing *module* loads beside Python's own modules, `cdc_core` with all of its own, and itself."""
    program = (
        "import sys, pluggy, cdc_core; known = set(sys.modules);"
        f"import {module}; print(*{{name for name in sys.modules if name not in known}})"
    )
    done = subprocess.run(command("-c", program), capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, f"{module} cannot be imported: {done.stderr}"
    parts = module.split(".")
    own = {".".join(parts[: n + 1]) for n in range(len(parts))}
    loaded = set(done.stdout.split()) - own
    return sorted(name for name in loaded if name.partition(".")[0] not in {*sys.stdlib_module_names, "cdc_core"})


@cache
def _imported_by(modules: tuple[str, ...], watched: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of *watched* a new Python has loaded when it imported *modules*."""
    program = f"import sys, {', '.join(modules)}; print(*[name for name in {watched!r} if name in sys.modules])"
    done = subprocess.run(command("-c", program), capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, f"{' or '.join(modules)} cannot be imported: {done.stderr}"
    return tuple(done.stdout.split())
