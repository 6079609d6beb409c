"""Localities: how they are written, what matches, and what is closer."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.locality import Locality

_words = st.text("abc019._-", min_size=1, max_size=5).filter(lambda word: word[0] not in ".-")
_localities = st.dictionaries(_words, _words, max_size=4).map(lambda tiers: Locality(tuple(tiers.items())))


@given(_localities)
def test_the_text_of_a_locality_is_read_back(locality: Locality) -> None:
    assert Locality.parse(str(locality)) == locality


@given(_localities, st.randoms())
def test_a_filter_matches_in_any_order_and_only_with_all_of_its_tiers(locality: Locality, random: Random) -> None:
    tiers = list(locality.tiers)
    random.shuffle(tiers)
    assert locality.matches(Locality(tuple(tiers)))
    assert locality.matches(Locality())
    assert not locality.matches(Locality((("elsewhere", "x"),)))


def test_tiers_in_common_count_from_the_outermost() -> None:
    here = Locality.parse("region=eu, zone=a, rack=1")
    assert here.common(Locality.parse("region=eu,zone=a,rack=2")) == 2
    assert here.common(Locality.parse("region=us,zone=a,rack=1")) == 0
    assert here.common(Locality.parse("region=eu")) == 1


@pytest.mark.parametrize(
    "text", ["region", "region=", "=eu", "region=eu,", "region=e u", "a=1,a=2", "region=eu;zone=a"]
)
def test_what_is_no_locality_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a locality") as refused:
        Locality.parse(text)
    assert text in str(refused.value)
