"""One record lost, doubled or changed is found."""

import duckdb
import pyarrow as pa
import pytest

from tests.chaos.compare import differences, digest
from tests.chaos.workloads import make

WANT = {"rows": pa.table({"id": [1, 2, 2, 3], "name": ["a", "b", "b", None]})}


@pytest.mark.parametrize(
    ("got", "lost", "extra"),
    [
        ({"id": [3, 2, 1, 2], "name": [None, "b", "a", "b"]}, 0, 0),
        ({"id": [1, 2, 3], "name": ["a", "b", None]}, 1, 0),
        ({"id": [1, 2, 2, 3, 3], "name": ["a", "b", "b", None, None]}, 0, 1),
        ({"id": [1, 2, 2, 3], "name": ["a", "b", "c", None]}, 1, 1),
        ({"id": [], "name": []}, 4, 0),
    ],
)
def test_rows_are_compared_as_a_multiset(got: dict, lost: int, extra: int) -> None:
    table = {"rows": pa.table(got, schema=WANT["rows"].schema)}
    (found,) = differences(table, WANT)
    assert (found.lost, found.extra) == (lost, extra)
    assert bool(found) == bool(lost or extra)
    assert (digest(table) == digest(WANT)) == (not found)


def bids(path, checkpoint: int, rows: list[tuple[int, int, int, int]]) -> None:
    """``rows``: (auction, bidder, seconds, kind)."""
    text = ", ".join(
        f"({a}, {b}, 1, 'c', 'u', TIMESTAMP '2026-01-01 00:00:{s:02d}', 'x', {k}::TINYINT)"
        for a, b, s, k in rows
    )
    names = "auction, bidder, price, channel, url, dateTime, extra, __kind"
    file = path / f"part-tag-0-{checkpoint}-0.parquet"
    duckdb.sql(f"COPY (SELECT * FROM (VALUES {text}) AS t({names})) TO '{file}' (FORMAT parquet)")


def test_of_updates_the_last_of_each_key_counts(tmp_path) -> None:
    job = make("q18", tmp_path)
    bids(job.out, 9, [(1, 1, 10, 0), (2, 1, 11, 0), (1, 1, 12, 2)])
    bids(job.out, 10, [(1, 1, 13, 2), (3, 1, 14, 0)])
    rows = job.read()["last bids"].select(["auction", "dateTime"]).sort_by("auction").to_pylist()
    assert [(r["auction"], r["dateTime"].second) for r in rows] == [(1, 13), (2, 11), (3, 14)]
    assert job.violations() == []


def test_an_update_that_comes_twice_is_a_violation(tmp_path) -> None:
    job = make("q18", tmp_path)
    bids(job.out, 9, [(1, 1, 10, 0), (1, 1, 12, 2)])
    bids(job.out, 10, [(1, 1, 12, 2), (1, 1, 13, 2)])
    assert [w.split()[0] for w in job.violations()] == ["1"]
