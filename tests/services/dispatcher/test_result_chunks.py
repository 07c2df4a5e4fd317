"""Which chunks a reader gets when a listing of the store is torn."""

from __future__ import annotations

import pytest

from penstock_services.dispatcher.results import without_gaps


def _key(attempt: int, sequence: int) -> str:
    return f"jobs/j/results/{attempt:06d}-{sequence:012d}"


@pytest.mark.parametrize(
    ("listed", "after", "given"),
    [
        ([], None, 0),
        ([(1, 0), (1, 1)], None, 2),
        ([(1, 1)], None, 0),  # the first one is missing from the listing
        ([(1, 5), (1, 6)], (1, 4), 2),
        ([(1, 5), (1, 7)], (1, 4), 1),
        ([(2, 0), (2, 1)], (1, 4), 2),  # a restarted job begins anew
        ([(1, 5), (2, 0), (2, 2)], (1, 4), 2),
        ([(2, 1)], (1, 4), 0),
    ],
)
def test_only_chunks_that_follow_each_other(
    listed: list[tuple[int, int]], after: tuple[int, int] | None, given: int
) -> None:
    keys = [_key(*name) for name in listed]
    assert without_gaps(keys, _key(*after) if after else "") == keys[:given]
