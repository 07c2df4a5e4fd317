"""Connectors that only work in a process of their own: they block, compute, and fail as they are told."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from penstock.connectors.api import (
    Connector,
    Fetched,
    LookupSource,
    SinkWriter,
    SourceEnumerator,
    SourceReader,
    Split,
)
from penstock.errors import BrokerError
from penstock.types.batch import Batch


class _Enumerator(SourceEnumerator):
    def __init__(self, options):
        self._options = options

    async def discover(self, ctx, known):
        found = [Split(f"split-{i}", {"first": i}) for i in range(int(self._options.get("splits", "2")))]
        return [split for split in found if split.id not in known]


class _Reader(SourceReader):
    """Numbers, some a poll, and each poll blocks for a moment."""

    def __init__(self, options):
        self._rows = int(options.get("rows", "1000"))
        self._fails_at = int(options.get("fails-at", "-1"))
        self._step = int(options.get("step", "10"))
        self._at = {}

    async def open(self, ctx):
        self.ctx = ctx
        self._blocks_s = float(ctx.options.get("blocks-ms", "0")) / 1000
        if ctx.options.get("opens") == "no":
            raise BrokerError("nobody answers", remedy="start it")

    def add_splits(self, splits):
        for split in splits:
            self._at[split.id] = split.position or 0

    def poll(self):
        time.sleep(self._blocks_s)
        split_id = min(self._at, key=self._at.get)
        at = self._at[split_id]
        if at >= self._rows:
            return None
        if 0 <= self._fails_at <= at:
            raise ValueError(f"no number {at}")
        end = min(self._rows, at + min(self._step, self.ctx.batch_rows))
        waits_for = self.ctx.options.get("ends-with")
        if end == self._rows and waits_for and not Path(waits_for).exists():
            time.sleep(0.002)
            end = at
        self._at[split_id] = end
        self.ctx.metrics.inc("numPolls")
        rows = [(split_id, i, "x" * int(self.ctx.options.get("wide", "1"))) for i in range(at, end)]
        return Fetched(split_id, Batch.of(self.ctx.schema, rows).select(list(self.ctx.projection)))

    async def wait(self):
        await asyncio.Event().wait()

    def on_checkpoint_complete(self, checkpoint_id, positions):
        self.ctx.metrics.inc("completedTo", sum(split.position or 0 for split in positions))

    def finished_splits(self):
        return {split_id for split_id, at in self._at.items() if at >= self._rows}

    def caught_up(self, split_id):
        return self._at[split_id] >= self._rows

    def snapshot(self):
        return [Split(i, {"first": int(i.rpartition("-")[2])}, at) for i, at in self._at.items()]


class _SleepingReader(_Reader):
    def dormant(self, split_id):
        return True


class _Writer(SinkWriter):
    """Exactly once: an epoch is a file with a name of its own, shown by a rename."""

    def __init__(self, options):
        self._folder = Path(options["path"])
        self._blocks_s = float(options.get("blocks-ms", "0")) / 1000

    async def open(self, ctx, restored):
        self.ctx = ctx
        self._rows, self._staged = [], {}
        for item in restored:
            self._show(json.loads(item))

    def write(self, batch):
        time.sleep(self._blocks_s)
        self._rows += batch.to_pylist()

    def begin_checkpoint(self, checkpoint_id):
        rows, self._rows = self._rows, []
        name = f"{self.ctx.subtask_index}-{self.ctx.attempt}-{checkpoint_id}"
        if rows:
            self._staged[checkpoint_id] = name

        async def durable():
            if rows:
                (self._folder / f".{name}").write_text(json.dumps(rows))
            return [json.dumps(item).encode() for item in self._staged.values()]

        return durable()

    async def commit(self, checkpoint_id):
        for done in [number for number in self._staged if number <= checkpoint_id]:
            self._show(self._staged.pop(done))

    def needs_commit(self):
        return bool(self._rows or self._staged)

    def _show(self, name):
        if (self._folder / f".{name}").exists():
            os.rename(self._folder / f".{name}", self._folder / name)
        else:
            assert (self._folder / name).exists()


class _Lookup(LookupSource):
    async def lookup(self, keys):
        names = keys.columns[0].to_pylist()
        if "fails" in names:
            raise BrokerError("asked too often")
        rows = [(name, len(name), "") for name in names if name != "absent"]
        return Batch.of(self.ctx.schema, rows).select(list(self.ctx.projection))

    async def load(self):
        return Batch.of(self.ctx.schema, [("all", 3, "")]).select(list(self.ctx.projection))


class HelpedConnector(Connector):
    name = "helped"
    runs = "helper"
    lookup_caches = ("NONE", "FULL")

    def is_bounded(self, table):
        return True

    def sink_guarantee(self, table):
        return "exactly-once"

    def enumerator(self, table):
        return _Enumerator(table.options)

    def reader(self, table):
        return (_SleepingReader if table.options.get("sleeps") else _Reader)(table.options)

    def writer(self, table):
        return _Writer(table.options)

    def lookup(self, table):
        return _Lookup()
