"""Batches of changelogs are cut between updates, never between an old row and its new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.connectors.cutting import first_rows
from penstock.errors import ConnectorError
from penstock.operators.source_changes import by_key, check_updates
from penstock.testing.conformance.driving import rows_of
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t

INSERT, BEFORE, AFTER, DELETE = RowKind
SCHEMA = Schema.of(("id", t.IntType()), ("n", t.IntType()))


def changes(*kinds: RowKind) -> Batch:
    return Batch.of(SCHEMA, [(i, i) for i in range(len(kinds))], kinds=list(kinds))


@pytest.mark.parametrize(
    ("kinds", "limit", "rows"),
    [
        ((INSERT, BEFORE, AFTER, INSERT), 1, 1),
        ((INSERT, BEFORE, AFTER, INSERT), 2, 1),
        ((INSERT, BEFORE, AFTER, INSERT), 3, 3),
        ((INSERT, BEFORE, AFTER, INSERT), 9, 4),
        ((BEFORE, AFTER, BEFORE, AFTER), 1, 2),
        ((BEFORE, AFTER, BEFORE, AFTER), 3, 2),
        ((INSERT, DELETE), 0, 1),
    ],
)
def test_where_a_batch_is_cut(kinds: tuple[RowKind, ...], limit: int, rows: int) -> None:
    assert len(first_rows(changes(*kinds), limit)) == rows


def test_rows_without_kinds_are_cut_anywhere() -> None:
    assert len(first_rows(Batch.of(SCHEMA, [(1, 1), (2, 2)]), 1)) == 1


async def test_a_file_of_updates_is_read_in_whole_updates(harness, tmp_path: Path) -> None:
    lines = [
        {"before": {"id": i, "n": 0}, "after": {"id": i + 100, "n": 1}, "op": "u"} if i % 3
        else {"before": None, "after": {"id": i, "n": 0}, "op": "c"}
        for i in range(40)
    ]  # fmt: skip
    (tmp_path / "a.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"connector": "filesystem", "path": str(tmp_path), "format": "debezium-json"}
    whole: list[tuple] = []
    for limit in (1, 2, 3, 7, 1_000):
        reader = await harness.reader(SCHEMA, options, batch_rows=limit)
        batches = [fetched.batch for fetched in await harness.read(reader)]
        await reader.close()
        for batch in batches:
            assert batch.kinds[-1] != BEFORE, limit
            check_updates(batch, "a")
        rows = [change for batch in batches for change in batch.rows()]
        whole = whole or rows
        assert rows == whole
    assert len(whole) == 40 + sum(1 for i in range(40) if i % 3)


def test_an_update_in_two_batches_is_refused() -> None:
    """A versioned table kept the old version for ever when the key had changed."""
    with pytest.raises(ConnectorError, match="parts the old row"):
        check_updates(changes(INSERT, BEFORE), "people")


@pytest.mark.parametrize("drops_before", [True, False])
def test_an_old_row_whose_new_row_was_set_aside_is_a_deletion(drops_before: bool) -> None:
    kept = by_key(changes(INSERT, BEFORE, INSERT), (0,), drops_before=drops_before)
    assert [kind for kind, _ in kept.rows()] == [INSERT, DELETE, INSERT]


def test_the_conformance_kit_finds_a_parted_update() -> None:
    assert len(rows_of(changes(INSERT, BEFORE, AFTER, DELETE))) == 4
    for kinds in ((INSERT, BEFORE), (BEFORE, INSERT), (BEFORE, BEFORE, AFTER)):
        with pytest.raises(AssertionError, match="first_rows"):
            rows_of(changes(*kinds))
