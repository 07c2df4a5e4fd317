"""A job's sink while its history is read.

An append-only input is written at once. Of a changelog only the rows that remain after the history's last row
are written, once: a sink by key gets one row for each key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.operators.sinks import SinkOperator
from penstock.spark.compaction import compacted
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import SinkSpec
    from penstock.operators.operator import Output

#: A changelog is compacted when it holds this many rows, and twice as many as remained after the last time.
_ROWS = 65_536


class HistorySink(SinkOperator):
    """Writes the rows that remain of the history. ``emit`` False: nothing of the history is written."""

    def __init__(self, spec: SinkSpec, *, emit: bool) -> None:
        super().__init__(spec)
        self._emit = emit
        self._keys = spec.keys if spec.mode == "upsert" else ()
        self._appends = spec.mode == "append"
        self._held: list[Batch] = []
        self._rows = 0
        self._standing = 0

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if not self._emit:
            return iter(())
        if self._appends:
            return super().process(input_index, batch)
        self._held.append(batch)
        self._rows += batch.num_rows
        if self._rows >= max(_ROWS, 2 * self._standing):
            self._compact()
        return iter(())

    def _compact(self) -> None:
        self._held = list(compacted(self._held, self._keys))
        self._rows = self._standing = sum(batch.num_rows for batch in self._held)

    def settled(self) -> list[Batch]:
        """The rows that remain at the end, each once."""
        self._compact()
        held, self._held = self._held, []
        return held

    def written(self, batch: Batch) -> Iterator[Output]:
        """Write a batch as the sink does."""
        return super().process(0, batch)
