"""What a notebook shows of a changelog: the rows that hold now."""

from __future__ import annotations

import pytest

from penstock.columnar.rows import Row
from penstock.table import live
from penstock.table.live import LiveRows
from penstock.table.rows import RowKind, result_row
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("who", t.VarCharType()), ("n", t.BigIntType()))
NAMES = ("who", "n")
INSERT, BEFORE, AFTER, DELETE = (
    int(kind) for kind in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
)


def row(who: str | None, n: int | None, kind: int = INSERT) -> Row:
    return result_row(NAMES, (who, n), kind)


def shown(rows: LiveRows, *, complete: bool = True) -> str:
    return rows.html("note", complete=complete)


def test_an_update_replaces_its_row_in_place() -> None:
    rows = LiveRows(SCHEMA)
    for change in (row("ann", 1), row("bob", 1), row("ann", 1, BEFORE), row("ann", 2, AFTER)):
        rows.add(change)
    html = shown(rows)
    assert html.index("ann") < html.index("bob")
    assert "2 rows, of 4 changes; note" in html
    assert ">1<" in html.split("bob")[1]
    assert ">2<" in html.split("bob")[0]


def test_a_deletion_takes_one_of_equal_rows() -> None:
    rows = LiveRows(SCHEMA)
    for change in (row("ann", 1), row("ann", 1), row("ann", 1, DELETE)):
        rows.add(change)
    assert len(rows) == 1
    assert "1 row, of 3 changes" in shown(rows)


def test_texts_are_escaped_and_null_is_not_the_word_null() -> None:
    rows = LiveRows(SCHEMA)
    rows.add(row("<script>", None))
    html = shown(rows)
    assert "&lt;script&gt;" in html
    assert "<i>NULL</i>" in html


@pytest.mark.parametrize(("complete", "first"), [(True, "w0"), (False, "w3")])
def test_more_rows_than_are_shown(monkeypatch: pytest.MonkeyPatch, complete: bool, first: str) -> None:
    monkeypatch.setattr(live, "SHOWN", 2)
    rows = LiveRows(SCHEMA)
    for n in range(5):
        rows.add(row(f"w{n}", n))
    html = shown(rows, complete=complete)
    assert f">{first}<" in html
    assert html.count("<tr>") == 3
    assert f"5 rows, the {'first' if complete else 'last'} 2 shown" in html


def test_a_long_stream_is_forgotten_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEPT", 3)
    rows = LiveRows(SCHEMA)
    for n in range(5):
        rows.add(row(f"w{n}", n))
    assert (len(rows), rows.forgotten) == (5, 2)
    rows.add(row("w0", 0, DELETE))
    assert (len(rows), rows.forgotten) == (4, 1)
