"""Lookup joins: each row with the rows that an external table has for its key at that moment.

All keys of a batch that the cache lacks are looked up in one request; the task waits for the response while
other tasks of the slot run. So the order of rows, watermarks and barriers does not change. There is no state:
the cache is empty after a restart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.connectors.base import TableInfo
from penstock.connectors.lookup import LookupSettings, lookup_settings
from penstock.connectors.registry import get_connector
from penstock.errors import ExternalError
from penstock.operators.asking import AskingOperator
from penstock.operators.bad_records import BadRecords
from penstock.operators.calc import compile_condition
from penstock.operators.connector_context import source_context
from penstock.operators.joining import bounded_slices, joined, matchable_rows, take_all
from penstock.operators.lookup_cache import LookupCache, distinct, whole_table
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from penstock.connectors.base import LookupSource
    from penstock.jobgraph.specs import LookupJoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

#: Seconds between two attempts, multiplied by the number of the attempt.
RETRY_PAUSE_S = 0.2


class LookupJoinOperator(AskingOperator):
    """Joins rows with the table of a lookup connector, through a cache."""

    def __init__(self, spec: LookupJoinSpec) -> None:
        self.spec = spec
        self._source: LookupSource | None = None

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self.spec
        self._left = ctx.input_schemas[0]
        self._rows_schema = t.Schema(tuple(spec.schema.fields[c] for c in spec.projection))
        #: The positions of the key columns in the projection.
        self._keys = [spec.projection.index(k) for k in spec.right_keys]
        self._key_schema = t.Schema(tuple(self._rows_schema.fields[k] for k in self._keys))
        self._pair_schema = t.Schema((*self._left.fields, *self._rows_schema.fields))
        self._condition = compile_condition(spec.condition, ctx)
        connector = get_connector(spec.connector)
        self._settings = lookup_settings(connector, spec.options, where=ctx.name)
        self._cache = self._new_cache()
        self._reload_ms: int | None = None
        ctx.metrics.gauge("numCachedRecord", lambda: len(self._cache))
        ctx.metrics.gauge("numCachedBytes", lambda: self._cache.nbytes)

    def _new_cache(self) -> LookupCache:
        return LookupCache(self._rows_schema, self._keys, self._settings)

    async def start(self) -> None:
        spec = self.spec
        source = get_connector(spec.connector).lookup(TableInfo(spec.schema, spec.options))
        on_error: Any = spec.options.get("on-error", "fail")
        self._bad = BadRecords(self.ctx, on_error)
        context = source_context(
            self.ctx,
            schema=spec.schema,
            options=spec.options,
            projection=spec.projection,
            on_error=on_error,
            bad_record=self._bad.record,
        )
        await source.open(context)
        self._source = source
        if self._settings.cache == "FULL":
            self._keep(await self._retried(source.load))

    async def stop(self) -> None:
        await super().stop()
        if self._source is not None:
            await self._source.close()

    async def _retried(self, ask: Callable[[], Awaitable[Batch]]) -> Batch:
        attempt = 0
        while True:
            try:
                return await ask()
            except ExternalError:
                attempt += 1
                self.ctx.metrics.inc("numLoadFailures")
                if attempt > self._settings.max_retries:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S * attempt)

    async def _looked_up(self, source: LookupSource, asked: Batch) -> Batch:
        """The rows of the keys. Keys without a row are asked for again, as often as the settings say."""
        rows = await self._retried(lambda: source.lookup(asked))
        lacking = asked
        for _ in range(self._settings.missing_attempts):
            known = LookupCache(self._rows_schema, self._keys, LookupSettings(cache="PARTIAL"))
            known.put(asked, rows, self.ctx.now_ms())
            lacking = lacking.filter(known.fan_out(known.slots(lacking.columns, lacking.num_rows)) == 0)
            if not lacking.num_rows:
                break
            self.ctx.metrics.inc("numLookupRetries", lacking.num_rows)
            await asyncio.sleep(self._settings.missing_delay_ms / 1000)
            keys = lacking
            more = await self._retried(lambda: source.lookup(keys))  # noqa: B023 (awaited in this turn of the loop)
            rows = Batch.concat([rows, more])
        return rows

    # -- rows ----------------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        keys = [batch.columns[k] for k in self.spec.left_keys]
        usable = matchable_rows(batch, self.spec.left_keys, ())
        if self._settings.cache == "FULL":
            yield from self._reload_when_due()
            slots = self._cache.slots(keys, batch.num_rows)
        else:
            slots = yield from self._asked_for(keys, usable, batch.num_rows)
        if usable is not None:
            slots[~usable] = -1
        yield from self._emit(batch, slots)
        if self._settings.cache == "NONE":
            self._cache = self._new_cache()
        else:
            self._cache.evict()

    def _asked_for(
        self, keys: list[Any], usable: np.ndarray | None, n: int
    ) -> Generator[Output, None, np.ndarray]:
        """The slots of the keys; keys that the cache lacks are looked up first."""
        assert self._source is not None
        slots = self._cache.find(keys, n, self.ctx.now_ms())
        missing = slots < 0 if usable is None else (slots < 0) & usable
        counters = self.ctx.metrics
        if not missing.any():
            counters.inc("hitCount", n)
            return slots
        chosen = np.flatnonzero(missing)
        counters.inc("hitCount", n - len(chosen))
        asked = distinct(Batch(self._key_schema, take_all(keys, chosen), num_rows=len(chosen)))
        counters.inc("missCount", len(chosen))
        counters.inc("loadCount", asked.num_rows)
        rows = yield from self.ask(self._looked_up(self._source, asked))
        self._cache.put(asked, rows, self.ctx.now_ms())
        return self._cache.slots(keys, n)

    def _emit(self, batch: Batch, slots: np.ndarray) -> Iterator[Output]:
        for part in bounded_slices(np.maximum(self._cache.fan_out(slots), 1)):
            rows = batch.slice(part.start, part.stop - part.start)
            of, entries = self._cache.probe(slots[part])
            if self._condition is not None and len(of):
                pair = [*take_all(rows.columns, of), *self._cache.take(entries)]
                met = self._condition(Batch(self._pair_schema, pair, num_rows=len(of)))
                of, entries = of[met], entries[met]
            if self.spec.kind == "left":
                alone = np.setdiff1d(np.arange(rows.num_rows), of)
                of = np.concatenate((of, alone))
                entries = np.concatenate((entries, np.full(len(alone), -1)))
                order = np.argsort(of, kind="stable")
                of, entries = of[order], entries[order]
            if len(of):
                theirs = self._taken(entries)
                ours = rows.take(of)
                yield ours.with_columns(
                    self.ctx.output_schema,
                    joined(self.ctx.output_schema, ours.columns, theirs).columns,
                )

    def _taken(self, entries: np.ndarray) -> list[Any]:
        found = np.flatnonzero(entries >= 0)
        at = np.full(len(entries), -1)
        at[found] = np.arange(len(found))
        columns = self._cache.take(entries[found])
        return columns if len(found) == len(entries) else [c.take_or_null(at) for c in columns]

    # -- the whole table -------------------------------------------------------------------------

    def _keep(self, rows: Batch) -> None:
        self._cache = whole_table(self._rows_schema, self._keys, self._settings, rows)
        every = self._settings.reload_interval_ms
        if every is not None and (self._reload_ms is None or not self._settings.fixed_rate):
            self._reload_ms = self.ctx.now_ms() + every
        self.ctx.metrics.inc("loadCount")

    def _reload_when_due(self) -> Iterator[Output]:
        """Before a batch: read the whole table again if its reload interval has passed."""
        every = self._settings.reload_interval_ms
        if every is None or self._reload_ms is None or self.ctx.now_ms() < self._reload_ms:
            return
        assert self._source is not None
        if self._settings.fixed_rate:
            missed = (self.ctx.now_ms() - self._reload_ms) // max(every, 1)
            self._reload_ms += (missed + 1) * every
        self._keep((yield from self.ask(self._retried(self._source.load))))
