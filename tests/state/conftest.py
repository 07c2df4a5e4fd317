from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.state.backend import KeyedStateBackend
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.memory import StateMemory
from penstock.types import logical as t


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class Backends:
    """Makes backends of one kind; the next one restores the one before it."""

    def __init__(self, kind: str, folder: Path, limit_bytes: int = 0) -> None:
        self.kind = kind
        self._limit_bytes = limit_bytes
        self.clock = Clock()
        self._folder = folder
        self._made: list[KeyedStateBackend] = []

    def make(self, *types: t.LogicalType, **options: Any) -> KeyedStateBackend:
        space = KeyLayout(types or (t.BigIntType(),), options.pop("max_parallelism", 128))
        folder = self._folder / str(len(self._made))
        kind = options.pop("kind", self.kind)
        backend = make_backend(
            kind, space, now_ms=self.clock, uid="op", local_dir=folder, cache_entries=8,
            memory=StateMemory(self._limit_bytes), **options,
        )  # fmt: skip
        self._made.append(backend)
        return backend

    def close(self) -> None:
        for backend in self._made:
            backend.close()


@pytest.fixture(params=["hashmap", "leveldb"])
def backends(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Backends(request.param, tmp_path)
    yield made
    made.close()
