"""The built-in keyed state backends, through the kit."""

from __future__ import annotations

import itertools

from penstock.state.backends import make_backend
from penstock.testing.conformance import StateBackendConformance


class TestHashMap(StateBackendConformance):
    kind = "hashmap"
    numbers = itertools.count()

    def make(self, space, *, now_ms, undo):
        folder = self.folder / str(next(self.numbers))
        return make_backend(
            self.kind, space, now_ms=now_ms, uid="op", local_dir=folder, undo=undo, cache_entries=8
        )


class TestLevelDB(TestHashMap):
    kind = "leveldb"
