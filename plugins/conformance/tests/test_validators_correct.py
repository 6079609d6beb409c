"""No validator blames a history that is as it should be, whatever repeats and restarts are in it."""

from __future__ import annotations

import pytest
from cdc_testing.histories import History
from cdc_testing.judges import judges
from cdc_testing.seen import feed


@pytest.mark.parametrize("files", [False, True], ids=["partitions", "files"])
@pytest.mark.parametrize("seed", range(30))
def test_no_correct_history_is_ever_blamed(seed: int, files: bool) -> None:
    history = History(seed, files)
    for events in (history.events(), history.troubled()):
        for name, validator in judges(history).items():
            assert feed(validator, *events) == [], name
