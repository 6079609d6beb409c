"""Options, and what of a sink travels between processes."""

from __future__ import annotations

import pickle

from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS
from cdc_conformance.sinks.watching import failure_of
from cdc_core import OptionError
from cdc_core.options import describe, option_names

__all__ = ["Options"]

_NONSENSE = ("no-such-value", "-1", "0", "", "99999999999999999999", "\x00")


class Options:
    """Promises of the options class."""

    def test_a_misspelt_option_is_refused_with_a_hint(self, rig: SinkRig) -> None:
        """A parameter of the URI that the sink does not have is an OptionError that says what was meant.

        An option that is ignored leaves its user with a default that he believes changed.
        """
        known = option_names(rig.options_class())
        error = failure_of(lambda: rig.job(parameters={"zz-no-such-option": "1"}))
        assert isinstance(error, OptionError), f"an unknown option must be an OptionError, not {error!r}"
        for name in known:
            typo = _misspelt(name)
            error = failure_of(lambda typo=typo: rig.job(parameters={typo: "1"}))  # type: ignore[misc]
            assert isinstance(error, OptionError), f"'{typo}' for '{name}' must be an OptionError, not {error!r}"
            assert "did you mean" in str(error), f"'{typo}' for '{name}' must be met with a hint, not: {error}"

    def test_every_option_is_documented(self, rig: SinkRig) -> None:
        """Each option says what it does, in `option(…, doc=…)`: tables, `cdc` and error messages are made of it."""
        bare = [row.name for row in describe(rig.options_class()) if not row.doc.strip()]
        assert not bare, f"these options have no doc: {bare}"

    def test_any_value_of_an_option_is_accepted_or_refused(self, rig: SinkRig) -> None:
        """A wrong type, nonsense, zero, less than zero, too much, nothing: a value is taken or an OptionError, at once.

        Declare options by types that `cdc_core.options` parses, and raise ValueError in `__post_init__`: it becomes the
        OptionError that names the option. Any other exception is one that the user cannot read.
        """
        for name in option_names(rig.options_class()):
            for value in _NONSENSE:
                error = failure_of(lambda name=name, value=value: rig.job(parameters={name: value}))  # type: ignore[misc]
                assert error is None or isinstance(error, OptionError), (
                    f"{name}={value!r} must be accepted or be an OptionError, not {error!r}"
                )

    def test_options_survive_pickle(self, rig: SinkRig) -> None:
        """Parsed options and the job that has them go to other processes by pickle, and are the same there."""
        rig.watch(ORDERS)
        options = rig.context().options
        error = failure_of(lambda: pickle.dumps(options))
        assert error is None, f"options must be picklable, but pickle raised {error!r}"
        assert pickle.loads(pickle.dumps(options)) == options, (
            "options must be equal after pickle: make them a dataclass"
        )
        sink = pickle.loads(pickle.dumps(rig.job())).open_sink()
        assert type(sink) is type(rig.open()), "the sink's class must be found by its name in its module"


def _misspelt(name: str) -> str:
    """Return *name* with two neighbouring letters swapped."""
    for place in range(len(name) // 2, len(name) - 1):
        if name[place] != name[place + 1]:
            return name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return name + "x"
