"""The storm over large tables finds each version that is left out, late or repeated."""

from __future__ import annotations

import numpy as np
import pytest
from cdc_testing.bulk_storm import follow


def _array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_versions_that_follow_each_other_and_repeats_are_accepted() -> None:
    newest = np.zeros(4, dtype=np.int64)
    assert follow(newest, _array(0, 1, 0, 0, 2), _array(3, 1, 4, 4, 9), "a job") == 1
    assert follow(newest, _array(0, 0, 0), _array(3, 4, 5), "a job") == 2
    assert newest.tolist() == [5, 1, 9, 0]


@pytest.mark.parametrize("versions", [(7,), (6, 8), (7, 6), (5, 6, 8)])
def test_a_version_that_is_left_out_or_late_is_found(versions: tuple[int, ...]) -> None:
    newest = _array(0, 5)
    with pytest.raises(AssertionError, match="left out or came too late, such as row 1"):
        follow(newest, _array(*[1] * len(versions)), _array(*versions), "a job")
