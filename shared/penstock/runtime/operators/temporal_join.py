"""Left rows joined with the right side's version as of their event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.sorting import stable_argsort
from penstock.runtime.operator import Operator, OperatorSnapshot
from penstock.runtime.operators.calc import compile_condition
from penstock.runtime.operators.emitting import event_times, pieces, restored_watermark, watermark_state
from penstock.runtime.operators.joining import joined, matchable_rows, take_all
from penstock.runtime.state.row_log import RowLog
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import TemporalJoinSpec
    from penstock.runtime.operator import OperatorContext, Output, RestoredState

_BOOL = t.BooleanType(False)


class TemporalJoinOperator(Operator):
    """Left rows wait for the watermark and are joined with the newest version of their key
    that is not younger; versions that no later row can ask for are dropped.

    The right input is an upsert or full changelog by key; a −D ends the key from its time
    on, a −U is the announcement of a +U and is passed over.
    """

    def __init__(self, spec: TemporalJoinSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        left, right = ctx.input_schemas
        self._schemas = (left, right)
        self._pair_schema = t.Schema((*left.fields, *right.fields))
        self._condition = compile_condition(self.spec.condition, ctx)
        self._waiting = RowLog(ctx, "waiting", left, self.spec.left_keys, kind="temporal-join")
        #: Versions: rows, and whether each is a deletion, in order of arrival.
        self._version_schema = t.Schema((*right.fields, t.Field("deleted", _BOOL)))
        self._versions = RowLog(
            ctx, "versions", self._version_schema, self.spec.right_keys, kind="temporal-join"
        )
        self._watermark = restored_watermark(restored)
        if restored is not None:
            self._waiting.restore(restored)
            self._versions.restore(restored)
        ctx.metrics.gauge("numVersions", lambda: len(self._versions))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if input_index == 1:
            kinds = np.zeros(batch.num_rows, np.uint8) if batch.kinds is None else batch.kinds
            kept = np.flatnonzero(kinds != 1)
            if len(kept):
                rows = batch.take(kept).with_kinds(None)
                deleted = Column(_BOOL, kinds[kept] == 3)
                self._versions.add(rows.with_columns(self._version_schema, [*rows.columns, deleted]))
            return iter(())
        late = event_times(batch, self.spec.left_time, self.ctx) <= self._watermark
        if late.any():
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            batch = batch.filter(~late)
        if batch.num_rows:
            self._waiting.add(batch)
        return iter(())

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        right_schema = self._schemas[1]
        times = self._waiting.rows().columns[self.spec.left_time].values
        left = self._waiting.take_out(times <= watermark)
        if not left.num_rows and not len(self._versions):
            return
        versions, deleted = self._all_versions()
        index = KeyIndex([right_schema.types[i].with_nullable(True) for i in self.spec.right_keys])
        slots, _ = index.upsert([versions.columns[i] for i in self.spec.right_keys], versions.num_rows)
        times = versions.columns[self.spec.right_time].values
        found = self._versions_of(left, index, slots, times)
        known = np.flatnonzero(found >= 0)
        found[known[deleted[found[known]]]] = -1
        yield from self._emit(left, versions, found)
        self._drop_old(deleted, slots, times)

    def _all_versions(self) -> tuple[Batch, np.ndarray]:
        rows = self._versions.rows()
        return rows.with_columns(self._schemas[1], rows.columns[:-1]), rows.columns[-1].values

    def _versions_of(self, left: Batch, index: KeyIndex, slots: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Row number of each left row's version, -1 where it has none."""
        keys = index.lookup([left.columns[i] for i in self.spec.left_keys], left.num_rows)
        usable = matchable_rows(left, self.spec.left_keys, ())
        if usable is not None:
            keys[~usable] = -1
        n = len(times)
        at = np.concatenate((times, left.columns[self.spec.left_time].values))
        of = np.concatenate((slots, keys))
        # At equal times versions stand before the rows that ask for them.
        order = stable_argsort(at)
        order = order[stable_argsort(of[order])]
        position = np.where(order < n, np.arange(len(order)), -1)
        last = np.maximum.accumulate(position) if len(order) else position
        version = np.where(last >= 0, order[last], -1)
        version = np.where((version >= 0) & (of[version] == of[order]), version, -1)
        out = np.full(left.num_rows, -1)
        asks = order >= n
        out[order[asks] - n] = version[asks]
        out[keys < 0] = -1
        return out

    def _emit(self, left: Batch, versions: Batch, found: np.ndarray) -> Iterator[Output]:
        order = stable_argsort(left.columns[self.spec.left_time].values)
        for part in pieces(order):
            rows, version = left.take(part), found[part]
            if self._condition is not None and (version >= 0).any():
                met = np.flatnonzero(version >= 0)
                pair = [*take_all(rows.columns, met), *take_all(versions.columns, version[met])]
                mask = self._condition(Batch(self._pair_schema, pair, num_rows=len(met)))
                version = version.copy()
                version[met[~mask]] = -1
            if self.spec.kind == "inner":
                met = np.flatnonzero(version >= 0)
                rows, version = rows.take(met), version[met]
            if rows.num_rows:
                theirs = [c.take_or_null(version) for c in versions.columns]
                yield joined(self.ctx.output_schema, rows.columns, theirs, rows.kinds)

    def _drop_old(self, deleted: np.ndarray, slots: np.ndarray, times: np.ndarray) -> None:
        """Keep versions above the watermark and each key's newest at or below it."""
        order = stable_argsort(times)
        order = order[stable_argsort(slots[order])]
        old = times[order] <= self._watermark
        newest = old.copy()
        newest[:-1] &= (slots[order][1:] != slots[order][:-1]) | ~old[1:]
        keep = np.zeros(len(times), np.bool_)
        keep[order] = ~old | (newest & ~deleted[order])
        self._versions.take_out(~keep)

    def close(self) -> None:
        for name in ("_waiting", "_versions"):
            if hasattr(self, name):
                getattr(self, name).close()

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        keyed = {log.name: log.cut() for log in (self._waiting, self._versions)}
        return OperatorSnapshot(keyed=keyed, unions=watermark_state(self._watermark))
