"""The two ends of a Nexmark job under chaos: a source that can be paced, and held, from
outside, and the product's exactly-once file sink taking changelogs.

``control``: a folder that the runner shares with the slots. While ``control/go`` is absent
the source keeps its pace and stops before its last tenth; then it runs to its end as fast as
it can. Sinks note there how many rows they have taken: rows that flow while nothing commits.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.connectors.filesystem.connector import FilesystemConnector
from penstock.connectors.filesystem.sink import FileSink
from penstock.connectors.nexmark.connector import NexmarkConnector
from penstock.connectors.nexmark.source import NexmarkReader
from penstock.types import Batch
from penstock.types.column import Column
from penstock.types.logical import Field, Schema, TinyIntType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import Fetched, SinkWriter, SourceContext, SourceReader, TableInfo

KIND = "__kind"
_NOTE_S = 0.1


def _without_control(table: TableInfo) -> tuple[TableInfo, Path]:
    options = {key: value for key, value in table.options.items() if key != "control"}
    return replace(table, options=options), Path(table.options["control"])


class Nexmark(NexmarkConnector):
    name = "python:tests.chaos.connectors:Nexmark"

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(_without_control(table)[0], role=role)

    def reader(self, table: TableInfo) -> SourceReader:
        return PacedReader(*_without_control(table))


class PacedReader(NexmarkReader):
    """Small chunks, so that a slow pace is an even one."""

    chunk_epochs = 8

    def __init__(self, table: TableInfo, control: Path) -> None:
        super().__init__(table)
        self._go = control / "go"
        self._held = True

    async def open(self, ctx: SourceContext) -> None:
        await super().open(ctx)
        self._look()

    def _look(self) -> None:
        if self._held and self._go.exists():
            self._held = False
            self._pace = 0
            self._chunks_per_batch = 40

    def poll(self) -> Fetched | None:
        self._look()
        return super().poll()

    def _due(self, state: Any) -> int:
        due = super()._due(state)
        if self._held and state.chunks is not None:
            return max(0, min(due, state.chunks * 9 // 10 - state.chunk))
        return due

    async def wait(self) -> None:
        self._look()
        await super().wait()


class ChangelogFiles(FilesystemConnector):
    """The filesystem sink with the row's kind as one more column."""

    name = "python:tests.chaos.connectors:ChangelogFiles"

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(_without_control(table)[0], role=role)

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert")

    def writer(self, table: TableInfo) -> SinkWriter:
        return ChangelogWriter(*_without_control(table))


class ChangelogWriter(FileSink):
    def __init__(self, table: TableInfo, control: Path) -> None:
        schema = Schema((*table.schema.fields, Field(KIND, TinyIntType(nullable=False))))
        super().__init__(replace(table, schema=schema))
        self._with_kind = schema
        self._control = control
        self._taken = 0
        self._noted = 0.0

    def write(self, batch: Batch) -> None:
        kinds = np.zeros(len(batch), np.int8) if batch.kinds is None else batch.kinds.astype(np.int8)
        columns = [*batch.columns, Column(TinyIntType(nullable=False), kinds)]
        super().write(Batch(self._with_kind, columns, num_rows=len(batch)))
        self._taken += len(batch)
        if time.monotonic() - self._noted >= _NOTE_S:
            self._noted = time.monotonic()
            note = self._control / f".rows-{self.ctx.subtask_index}-{os.getpid()}"
            note.write_text(f"{self._taken}")
            note.replace(self._control / f"rows-{self.ctx.subtask_index}")
