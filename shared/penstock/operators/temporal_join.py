"""Temporal joins: left rows joined with the right side's version as of their event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.sorting import group_bounds, stable_argsort, stable_argsort_by
from penstock.errors import RecordError
from penstock.jobgraph.specs import SortKey
from penstock.operators.calc import compile_condition
from penstock.operators.emitting import event_times, pieces, restored_watermark, watermark_state
from penstock.operators.joining import joined, matchable_rows, take_all
from penstock.operators.operator import Operator
from penstock.operators.temporal_versions import SettledVersions
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows, due_together
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import TemporalJoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_BOOL, _LONG = t.BooleanType(False), t.BigIntType(False)


class TemporalJoinOperator(Operator):
    """Joins each left row with the newest version of its key that is not later than the row.

    Left rows wait for the watermark; versions that no later row can need are dropped. The right input is an
    upsert or full changelog by key. A −D ends the key's versions at its time; a −U is ignored, because its +U
    follows.
    """

    def __init__(self, spec: TemporalJoinSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        left, right = ctx.input_schemas
        self._schemas = (left, right)
        self._pair_schema = t.Schema((*left.fields, *right.fields))
        self._condition = compile_condition(self.spec.condition, ctx)
        self._waiting = self.keep(
            WaitingRows(
                ctx, "waiting", left, self.spec.left_keys, _by_time(self.spec.left_time), kind="temporal-join"
            )
        )
        #: Versions above the watermark, with a column ``deleted``. ``_settled`` has the newest of each key below it.
        self._version_schema = t.Schema((*right.fields, t.Field("deleted", _BOOL)))
        self._versions = self.keep(
            WaitingRows(
                ctx, "versions", self._version_schema, self.spec.right_keys, _by_time(self.spec.right_time),
                kind="temporal-join",
            )
        )  # fmt: skip
        self._settled = SettledVersions(ctx, right, self.spec.right_keys)
        self.keep(self._settled.keys)
        self._watermark = restored_watermark(restored)
        for state in (self._waiting, self._versions, self._settled.keys):
            state.restore(restored)
        ctx.metrics.gauge("numVersions", lambda: len(self._versions) + len(self._settled))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if input_index == 1:
            kinds = np.zeros(batch.num_rows, np.uint8) if batch.kinds is None else batch.kinds
            kept = np.flatnonzero(kinds != 1)
            if len(kept):
                rows = batch.take(kept).with_kinds(None)
                deleted = Column(_BOOL, kinds[kept] == 3)
                self._check_times(rows, deleted.values)
                event_times(rows, self.spec.right_time, self.ctx)  # refuses rows without one
                self._versions.add(rows.with_columns(self._version_schema, [*rows.columns, deleted]))
            return iter(())
        late = event_times(batch, self.spec.left_time, self.ctx) <= self._watermark
        if late.any():
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            batch = batch.filter(~late)
        self._waiting.add(batch)
        return iter(())

    def _check_times(self, rows: Batch, deleted: np.ndarray) -> None:
        """RecordError for a deletion without a time: from when on the key has no version is not known."""
        valid = rows.columns[self.spec.right_time].valid
        if valid is None or not (deleted & ~valid).any():
            return
        raise RecordError(
            "a deletion in a versioned table has no time",
            expected=f"a value in {rows.schema.fields[self.spec.right_time].name!r} of every change",
            got="NULL: the column is none of the key and of the metadata, which are all that a deletion has",
            where=self.ctx.name,
            remedy="declare the event time from metadata: at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL",
        )

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        for left, versions in due_together((self._waiting, self._versions), watermark):
            yield from self._join(left, versions)

    def _join(self, left: Batch, due: Batch) -> Iterator[Output]:
        """Join rows and versions of one interval of time; all versions before it are settled."""
        keyed = matchable_rows(left, self.spec.left_keys, ())
        asking = np.arange(left.num_rows) if keyed is None else np.flatnonzero(keyed)
        versions_of = [due.columns[i] for i in self.spec.right_keys]
        asked = take_all([left.columns[i] for i in self.spec.left_keys], asking)
        both = [_under_one_type(pair) for pair in zip(versions_of, asked, strict=True)]
        slots = self._settled.slots_of(both, due.num_rows + len(asking))
        touched = distinct(slots)
        settled, of = self._settled.take(touched)
        # Settled versions come first, so that of versions with equal times the later arrival counts.
        versions = Batch.concat([settled, due.with_columns(settled.schema, due.columns[:-1])])
        deleted = np.concatenate((np.zeros(len(of), np.bool_), due.columns[-1].values))
        of = np.concatenate((of, slots[: due.num_rows]))
        times = versions.columns[self.spec.right_time].values
        found = np.full(left.num_rows, -1)
        found[asking] = _versions_of(
            slots[due.num_rows :], left.columns[self.spec.left_time].values[asking], of, times
        )
        known = np.flatnonzero(found >= 0)
        found[known[deleted[found[known]]]] = -1
        yield from self._emit(left, versions, found)
        self._settle(versions, deleted, of, times, settled.num_rows)
        self._settled.sweep(touched)
        self._settled.make_room(len(touched))

    def _settle(
        self, versions: Batch, deleted: np.ndarray, of: np.ndarray, times: np.ndarray, settled: int
    ) -> None:
        """Store each key's newest version. The first ``settled`` of the versions are stored already."""
        order = stable_argsort_by(of, times)
        newest = order[group_bounds(of[order])[1:] - 1] if len(order) else order
        gone = deleted[newest]
        self._settled.forget(of[newest[gone]])
        kept = newest[~gone & (newest >= settled)]
        self._settled.put(of[kept], take_all(versions.columns, kept))

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

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))


def _by_time(index: int) -> WaitingOrder:
    return WaitingOrder(
        lambda rows: [Column(_LONG, rows.columns[index].values)],
        (SortKey(0),),
        lambda rows: rows.columns[index].values,
    )


def _under_one_type(pair: tuple[Column, Column]) -> Column:
    type_ = pair[0].type.with_nullable(True)
    return Column.concat([column.cast_type(type_) for column in pair])


def _versions_of(keys: np.ndarray, asked: np.ndarray, slots: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The number of each row's version: the newest of its key that is not later than the row; -1 if there is
    none.

    ``keys`` and ``asked`` are the key slots and times of the rows, ``slots`` and ``times`` those of the
    versions.
    """
    n = len(times)
    # Among equal times versions sort before rows.
    of = np.concatenate((slots, keys))
    order = stable_argsort_by(of, np.concatenate((times, asked)))
    position = np.where(order < n, np.arange(len(order)), -1)
    last = np.maximum.accumulate(position) if len(order) else position
    version = np.where(last >= 0, order[last], -1)
    version = np.where((version >= 0) & (of[version] == of[order]), version, -1)
    out = np.full(len(keys), -1)
    asks = order >= n
    out[order[asks] - n] = version[asks]
    return out
