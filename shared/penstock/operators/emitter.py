"""Collects the results of a user's function: rows of the main output and of side outputs, with their event times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.emitted import fixer, taken
from penstock.columnar.python_values import columns_of
from penstock.operators.operator import SideBatch
from penstock.operators.output_tag import OutputTag
from penstock.types import Batch
from penstock.types.batch import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.operators.operator import Output
    from penstock.types import Schema


class Emitter:
    """Collects main and side outputs, each with an event time in µs (or None). ``tags`` are the side outputs in use."""

    def __init__(self, schema: Schema, where: str, tags: Iterable[str]) -> None:
        self._schema = schema
        fixed, tags = fixer(schema), frozenset(tags)
        # A function may yield to a side output that nobody reads, which drops the value, as in Flink.
        #: For ``items``: takes what a record holds at once, before the function changes it; None: it holds values.
        self.fixed = fixed if fixed is None and not tags else _with_tags(fixed)
        self._where = where
        self._tags = tags
        self.items: list[Any] = []
        #: The event time (µs) of each of ``items``; ``stamp`` keeps both lists equally long.
        self.times: list[int | None] = []
        self.side: dict[OutputTag, tuple[list[Any], list[int | None]]] = {}
        self.side_count = 0
        self.side_time: int | None = None

    def side_output(self, tag: OutputTag, value: Any) -> None:
        """Add ``value`` to the side output ``tag``, with the event time ``side_time``."""
        fixed = fixer(tag.schema)
        value = value if fixed is None else fixed(value)
        rows, times = self.side.setdefault(tag, ([], []))
        rows.append(value)
        times.append(self.side_time)
        self.side_count += 1

    def stamp(self, time_us: int | None) -> None:
        """Give all main outputs since the last call this event time (µs; None: no event time)."""
        missing = len(self.items) - len(self.times)
        if missing:
            self.times.extend([time_us] * missing)

    def mark(self) -> tuple[int, dict[OutputTag, int]]:
        """The current lengths of all outputs, for ``undo``."""
        return len(self.items), {tag: len(rows) for tag, (rows, _) in self.side.items()}

    def undo(self, mark: tuple[int, dict[OutputTag, int]]) -> None:
        """Remove all outputs that were added after ``mark``."""
        count, sides = mark
        del self.items[count:]
        del self.times[count:]
        for tag, (rows, times) in self.side.items():
            keep = sides.get(tag, 0)
            del rows[keep:]
            del times[keep:]

    def split_tagged(self) -> None:
        """Move values that were yielded as ``tag, value`` (as in Flink) to their side outputs."""
        if not self.items:
            return
        items = self.items
        tagged = [
            i for i, x in enumerate(items) if type(x) is tuple and len(x) == 2 and type(x[0]) is OutputTag
        ]
        if not tagged:
            return
        for i in tagged:
            tag, value = items[i]
            self.side_time = self.times[i]
            self.side_output(tag, value)
        drop = set(tagged)
        self.items = [x for i, x in enumerate(items) if i not in drop]
        self.times = [x for i, x in enumerate(self.times) if i not in drop]

    def flush(self) -> Iterator[Output]:
        """All collected outputs as batches; the collector is then empty. Side outputs without a reader are dropped."""
        self.split_tagged()
        if self.items:
            items, times = self.items, self.times
            self.items, self.times = [], []
            yield _batch(self._schema, items, times, self._where)
        if self.side_count:
            side, self.side, self.side_count = self.side, {}, 0
            for tag, (rows, row_times) in side.items():
                if tag.tag_id in self._tags and rows:
                    where = f"{self._where}, side output '{tag.tag_id}'"
                    yield SideBatch(tag.tag_id, _batch(tag.schema, rows, row_times, where))


def _batch(schema: Schema, rows: list[Any], times: Sequence[int | None], where: str) -> Batch:
    stamps = None
    if any(time is not None for time in times):
        stamps = np.array([NO_TIME if time is None else time for time in times], np.int64)
    return Batch(schema, columns_of(schema, rows, where), times=stamps, num_rows=len(rows))


def _with_tags(fixed: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """``fixed`` for a function that also emits pairs of a tag and a value."""

    def both(item: Any) -> Any:
        if type(item) is tuple and len(item) == 2 and type(item[0]) is OutputTag:
            return item[0], taken(item[1])
        return item if fixed is None else fixed(item)

    return both
