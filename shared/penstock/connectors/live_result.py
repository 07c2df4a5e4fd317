"""The current rows of an unbounded result, for a person who watches it. No history is kept.

For appended rows it holds the last few and a count; for updates by key, one row for each key; otherwise each
distinct row with its number of copies. A restart of the job takes the changelog back to its last checkpoint,
so the table at the last settled chunk and the changes since then are held, too.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from penstock.connectors.collect import changes_of
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.connectors.collect import Change, ResultChunk, Row

_ADDS = (0, 2)


class LiveResult:
    """The current rows of a result. ``mode``: the changelog mode; ``keys``: columns of the upsert key;
    ``shown``: the most rows that will be shown."""

    def __init__(self, mode: str, keys: Sequence[int] | None, shown: int) -> None:
        self._shown = shown
        self._mode, self._keys = mode, keys
        self._current = self._new()
        #: The table at row ``_settled_at`` of the changelog, and the changes since.
        self._settled = self._new()
        self._settled_at = 0
        self._since: list[Change] = []

    def add(self, chunk: ResultChunk) -> None:
        """Add a chunk. A chunk that starts before the end replaces the rows after its start."""
        at = self._settled_at + len(self._since)
        if chunk.settled is None:
            # Without checkpoints a restart begins at row 0, so the changelog never goes back to a row in
            # between.
            if chunk.offset == 0:
                self._current = self._new()
            self._apply(self._current, changes_of(chunk))
            return
        if chunk.offset < at:
            self._rewind(chunk.offset)
        changes = changes_of(chunk)
        self._since += changes
        self._apply(self._current, changes)
        self._settle(chunk.settled)

    def rows(self) -> tuple[list[Row], int]:
        """(the last rows, how many there are in all)."""
        return self._current.last(self._shown), len(self._current)

    @property
    def held(self) -> int:
        """Rows and changes in memory."""
        return self._current.held + self._settled.held + len(self._since)

    def _new(self) -> _Table:
        if self._mode == "append":
            return _Tail(self._shown)
        return _Bag() if self._keys is None else _ByKey(self._keys)

    def _rewind(self, offset: int) -> None:
        if offset == 0:
            self._settled, self._settled_at, self._since = self._new(), 0, []
        elif offset < self._settled_at:
            raise InternalError(
                "the result went back behind a checkpoint",
                expected=f"row {self._settled_at} or later",
                got=f"row {offset}",
            )
        del self._since[offset - self._settled_at :]
        self._current = self._new()
        self._current.restore(self._settled)
        self._apply(self._current, self._since)

    def _settle(self, settled: int) -> None:
        count = min(settled - self._settled_at, len(self._since))
        if count > 0:
            self._apply(self._settled, self._since[:count])
            del self._since[:count]
            self._settled_at += count

    @staticmethod
    def _apply(table: _Table, changes: Iterable[Change]) -> None:
        for kind, row in changes:
            table.change(kind, row)


class _Table(Protocol):
    def change(self, kind: int, row: Row) -> None: ...

    def last(self, n: int) -> list[Row]: ...

    def restore(self, other: _Table) -> None: ...

    def __len__(self) -> int: ...

    @property
    def held(self) -> int: ...


class _Tail:
    """The last ones of appended rows."""

    def __init__(self, shown: int) -> None:
        self._rows: deque[Row] = deque(maxlen=shown)
        self._count = 0

    def change(self, kind: int, row: Row) -> None:
        self._rows.append(row)
        self._count += 1

    def last(self, n: int) -> list[Row]:
        return list(self._rows)[-n:]

    def restore(self, other: _Table) -> None:
        assert isinstance(other, _Tail)
        self._rows, self._count = other._rows.copy(), other._count

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> int:
        return len(self._rows)


class _ByKey:
    """Updates by key: one row for each key, in the order of first appearance."""

    def __init__(self, keys: Sequence[int]) -> None:
        self._keys = tuple(keys)
        self._rows: dict[str, Row] = {}

    def change(self, kind: int, row: Row) -> None:
        # Nested values are lists and dicts, which cannot be hashed; their text identifies them exactly.
        key = repr([row[i] for i in self._keys])
        if kind in _ADDS:
            self._rows[key] = row
        elif kind == 3:
            self._rows.pop(key, None)

    def last(self, n: int) -> list[Row]:
        return list(islice(reversed(self._rows.values()), n))[::-1]

    def restore(self, other: _Table) -> None:
        assert isinstance(other, _ByKey)
        self._rows = dict(other._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def held(self) -> int:
        return len(self._rows)


class _Bag:
    """Rows that are added and retracted as a whole: each distinct row with its number of copies."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Row, int]] = {}
        self._count = 0

    def change(self, kind: int, row: Row) -> None:
        key = repr(row)
        held = self._rows.get(key, (row, 0))[1] + (1 if kind in _ADDS else -1)
        if held < 0:
            raise InternalError("a row is retracted that was never added", got=key[:200])
        self._count += 1 if kind in _ADDS else -1
        if held:
            self._rows[key] = (row, held)
        else:
            del self._rows[key]

    def last(self, n: int) -> list[Row]:
        out: list[Row] = []
        for row, count in reversed(self._rows.values()):
            out += [row] * min(count, n - len(out))
            if len(out) >= n:
                break
        return out[::-1]

    def restore(self, other: _Table) -> None:
        assert isinstance(other, _Bag)
        self._rows, self._count = dict(other._rows), other._count

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> int:
        return len(self._rows)
