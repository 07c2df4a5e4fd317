"""State backends by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock.state.hashmap import HashMapStateBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.backend import KeyedStateBackend
    from penstock.state.blocks import KeyLayout
    from penstock.state.epochs import Epochs
    from penstock.state.memory import StateMemory


def make_backend(
    kind: str,
    space: KeyLayout,
    *,
    now_ms: Callable[[], int],
    uid: str,
    local_dir: Any = None,
    undo: bool = False,
    cache_entries: int | None = None,
    epochs: Epochs | None = None,
    memory: StateMemory | None = None,
) -> KeyedStateBackend:
    """``kind``: ``hashmap`` or ``leveldb`` (files in ``local_dir``, live values counted in
    ``memory``). ``epochs``: the task's."""
    if kind == "hashmap":
        return HashMapStateBackend(space, now_ms=now_ms, uid=uid, undo=undo, epochs=epochs)
    if kind == "leveldb":
        from penstock.state.leveldb import LevelDBStateBackend

        limit: Any = {} if cache_entries is None else {"cache_entries": cache_entries}
        return LevelDBStateBackend(
            space, local_dir, now_ms=now_ms, uid=uid, undo=undo, epochs=epochs, memory=memory, **limit
        )
    raise SpecError("unknown state backend", expected="hashmap | leveldb", got=repr(kind))
