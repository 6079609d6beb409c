"""The blocks of an initial scan are divided so that every executor has about as much to do."""

from __future__ import annotations

from cdc_rangefeed_postgres.blocks import _PIECE_BYTES, BLOCK_BYTES, Density, Piece, split
from hypothesis import given
from hypothesis import strategies as st

MB = 1024 * 1024
BLOCKS_OF_A_MB = MB // BLOCK_BYTES


def piece(oid: int, blocks: int, first: int = 0) -> Piece:
    return Piece(table=f"t{oid}", leaf=f"t{oid}", oid=oid, filenode=oid, first=first, end=first + blocks)


def costs(shares: list[list[Piece]], weight: float = 1.0) -> list[float]:
    return [sum((each.end - each.first) * BLOCK_BYTES * weight + _PIECE_BYTES for each in share) for share in shares]


def test_one_large_and_many_small_tables_keep_all_executors_busy() -> None:
    pieces = [piece(0, 100 * BLOCKS_OF_A_MB), *(piece(oid, 1) for oid in range(1, 1001))]
    for count in (2, 3, 4, 8):
        found = costs(split(pieces, {}, count=count, bytes_=1024 * MB))
        assert len(found) == count
        assert max(found) < 1.1 * min(found)


def test_a_table_with_large_values_weighs_more() -> None:
    pieces = [piece(0, 1000), piece(1, 1000)]
    densities = {0: Density(10, 3 * BLOCK_BYTES), 1: Density(10, BLOCK_BYTES)}
    left, right = split(pieces, densities, count=2, bytes_=1024 * MB)
    assert [each.oid for each in left] == [0]
    assert [each.oid for each in right] == [0, 1]
    assert 300 < right[0].end - right[0].first < 350


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 3000)), min_size=1, max_size=30),
    st.integers(1, 16),
    st.sampled_from([MB // 16, MB, 64 * MB]),
)
def test_every_block_is_in_one_share_and_no_share_is_much_too_large(
    tables: list[tuple[int, int]], count: int, bytes_: int
) -> None:
    pieces = [piece(oid, blocks, first) for oid, (first, blocks) in enumerate(tables)]
    shares = split(pieces, {}, count=count, bytes_=bytes_)
    blocks = sorted((each.oid, block) for share in shares for each in share for block in range(each.first, each.end))
    assert blocks == [(each.oid, block) for each in pieces for block in range(each.first, each.end)]
    assert all(shares)
    total = sum(each.end - each.first for each in pieces) * BLOCK_BYTES
    assert len(shares) <= max(count, total // bytes_ + 1)
    assert all(cost <= bytes_ + (len(pieces) + 2) * (_PIECE_BYTES + BLOCK_BYTES) for cost in costs(shares))
