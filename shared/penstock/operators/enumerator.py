"""The enumerator of a source: discovers splits and broadcasts which reader reads each split."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.base import Split, TableInfo
from penstock.connectors.registry import get_connector
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA, owner_of_split
from penstock.operators.connector_context import source_context
from penstock.operators.drivers import SourceDriver
from penstock.operators.operator import MIN_WATERMARK
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from penstock.connectors.base import SourceEnumerator
    from penstock.jobgraph.specs import EnumeratorSpec
    from penstock.operators.operator import OperatorContext
    from penstock.snapshots.contract import RestoredState


class EnumeratorOperator(SourceDriver):
    """Discovers splits and assigns them to readers. State: the list ``assigned`` (split ids in order of discovery)."""

    def __init__(self, spec: EnumeratorSpec) -> None:
        super().__init__()
        self._spec = spec
        self._enumerator: SourceEnumerator | None = None
        self._assigned: list[str] = []
        self._found: list[Split] = []
        self._discovered = False
        self._stopped = False

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        if restored is not None:
            self._assigned = [item.decode() for item in restored.lists.get("assigned", [])]

    async def start(self) -> None:
        spec = self._spec
        connector = get_connector(spec.connector)
        self._enumerator = connector.enumerator(TableInfo(spec.schema, spec.options))
        self._source_ctx = source_context(
            self.ctx, schema=spec.schema, options=spec.options, parallelism=spec.reader_parallelism
        )

    def poll(self) -> Batch | None:
        if not self._found:
            return None
        splits, self._found = self._found, []
        return self._assign(splits)

    def _assign(self, splits: list[Split]) -> Batch:
        rows = []
        for split in splits:
            owner = owner_of_split(len(self._assigned), self._spec.reader_parallelism)
            rows.append((owner, msgspec.json.encode(split).decode()))
            self._assigned.append(split.id)
        return Batch.of(ASSIGNMENT_SCHEMA, rows)

    async def wait(self) -> None:
        enumerator = self._enumerator
        assert enumerator is not None
        if self._discovered:
            # The event loop's clock suffices: a discovery that is cancelled is repeated.
            await asyncio.sleep((enumerator.discovery_interval_ms or 0) / 1000)
        known = set(self._assigned)
        found = await enumerator.discover(self._source_ctx, known)
        self._found = [split for split in found if split.id not in known]
        self._discovered = True

    def position(self, now_ms: int) -> tuple[int, bool]:
        return MIN_WATERMARK, self._discovered and not self._found

    def ended(self) -> bool:
        if self._stopped:
            return True
        once = self._enumerator is not None and self._enumerator.discovery_interval_ms is None
        return self._discovered and not self._found and once

    def stop_reading(self) -> None:
        self._stopped = True

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(lists={"assigned": [split.encode() for split in self._assigned]})

    async def stop(self) -> None:
        if self._enumerator is not None:
            await self._enumerator.close()
