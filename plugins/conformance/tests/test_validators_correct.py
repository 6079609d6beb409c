"""No validator fails for a correct history, with any repeats and restarts."""

from __future__ import annotations

import pytest
from cdc_testing.histories import History
from cdc_testing.seen import feed
from cdc_testing.strict_validators import strict_validators


@pytest.mark.parametrize("files", [False, True], ids=["partitions", "files"])
@pytest.mark.parametrize("seed", range(30))
def test_a_correct_history_has_no_failures(seed: int, files: bool) -> None:
    history = History(seed, files)
    for events in (history.events(), history.with_restarts()):
        for name, validator in strict_validators(history).items():
            assert feed(validator, *events) == [], name
