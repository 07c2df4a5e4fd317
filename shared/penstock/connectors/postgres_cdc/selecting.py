"""Turns the messages of a run into rows of the changelog: sets the kinds by the mode, and drops rows that the
snapshot has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.cdc.rows import changelog_kinds
from penstock.connectors.postgres_cdc import pgoutput
from penstock.connectors.postgres_cdc.decoding import Texts
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.postgres_cdc.database import CdcTable
    from penstock.connectors.postgres_cdc.position import Position
    from penstock.connectors.postgres_cdc.stream import Run

    Behind = Callable[[CdcTable, Sequence[pa.Array], tuple[str, ...]], Sequence[bool]]


class Selector:
    """Makes the rows of runs. ``names``: columns to deliver; ``upserts``: the newest row of each key, and deletions;
    ``is_behind``: tells whether keys come after a bound in the order of the chunks."""

    def __init__(
        self, tables: Sequence[CdcTable], names: Sequence[str], *, upserts: bool, is_behind: Behind
    ) -> None:
        self._tables, self._names, self._upserts = tables, list(names), upserts
        self._is_behind = is_behind
        #: Transactions with changes that were left out for a later chunk; that chunk's view must see them.
        self.must_see: set[int] = set()

    def rows(self, run: Run, layouts: Sequence[tuple[int, list[str]]], position: Position) -> list[Texts]:
        """The rows of a run, for each layout of a table."""
        out = []
        for layout, messages in run.messages.items():
            index, columns = layouts[layout]
            table = self._tables[index]
            changes = pgoutput.changes(messages, len(columns))
            at = {name: i for i, name in enumerate(columns)}
            keys = [changes.columns[at[c.name]] for c in table.key]
            places = np.asarray(run.order[layout], np.int64)[changes.message]
            xids, times_us = run.per_message(places)
            kinds, kept = self._kinds(changes.kinds, keys)
            texts = Texts(
                table,
                [changes.columns[at[name]] for name in self._names],
                kinds,
                times_us,
                changes.key_only,
                [changes.unchanged[at[name]] for name in self._names],
                places,
            )
            if position.filters:
                kept &= self._not_in_snapshot(index, keys, xids, position)
            out.append(texts if kept.all() else texts.take(np.flatnonzero(kept)))
        return out

    def _kinds(self, kinds: np.ndarray, keys: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        """The kinds of rows, and a mask of the rows to deliver."""
        old = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE)
        same = np.ones(len(old), np.bool_)
        if len(old):
            before, after = pa.array(old), pa.array(old + 1)
            for key in keys:
                same &= pc.equal(key.take(before), key.take(after)).to_numpy(zero_copy_only=False)
        return changelog_kinds(kinds, old, same, upserts=self._upserts)

    def _not_in_snapshot(
        self, index: int, keys: Sequence[pa.Array], xids: np.ndarray, position: Position
    ) -> np.ndarray:
        """Mask of rows that no chunk has seen or will see (``position``)."""
        table, cursor, window = self._tables[index], position.cursor, position.window
        kept = np.ones(len(xids), np.bool_)
        if cursor is not None and index >= cursor.table:
            later = np.ones(len(xids), np.bool_)
            if index == cursor.table and cursor.after is not None:
                later = np.array(self._is_behind(table, keys, cursor.after), np.bool_)
            kept &= ~later
            self.must_see.update(np.unique(xids[later]).tolist())
        if window is not None and window.table == index:
            inside = kept.copy()
            if window.after is not None and inside.any():
                inside &= np.array(self._is_behind(table, keys, window.after), np.bool_)
            if window.upto is not None and inside.any():
                inside &= ~np.array(self._is_behind(table, keys, window.upto), np.bool_)
            seen = {xid: window.view.sees(xid) for xid in np.unique(xids).tolist()}
            kept &= ~(inside & np.array([seen[xid] for xid in xids.tolist()], np.bool_))
        return kept
