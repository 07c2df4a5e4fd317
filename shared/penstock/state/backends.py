"""State backends by name: Penstock's own, those of installed packages, and import paths.

``state.backend.type`` names one: ``hashmap``, ``leveldb``, an entry point of the group
``penstock.state_backends``, or ``package.module:factory``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock.plugins import IMPORT_PATH, Register, function
from penstock.state.backend import KeyedStateBackend
from penstock.state.hashmap import HashMapStateBackend

if TYPE_CHECKING:
    from penstock.state.blocks import KeyLayout
    from penstock.state.epochs import Epochs
    from penstock.state.memory import StateMemory

_WHERE = "configuration key 'state.backend.type'"


@dataclass(frozen=True, slots=True)
class BackendContext:
    """The arguments of a backend besides the layout of its keys.

    ``now_ms``: processing time. ``uid``: the operator's. ``undo``: changes of a record may have to be
    undone. ``epochs``: the task's. ``local_dir``: an empty folder of this subtask, removed with its slot.
    ``memory``: the memory account of the slot. ``config``: the job's configuration. ``cache_entries``:
    live values that a backend on disk keeps in memory; None: its default.
    """

    now_ms: Callable[[], int]
    uid: str
    undo: bool = False
    epochs: Epochs | None = None
    local_dir: Any = None
    memory: StateMemory | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    cache_entries: int | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``KeyedStateBackend`` itself."""
        return {"now_ms": self.now_ms, "uid": self.uid, "undo": self.undo, "epochs": self.epochs}


#: ``factory(space, context) -> KeyedStateBackend``.
BackendFactory = Callable[["KeyLayout", BackendContext], KeyedStateBackend]


def hashmap(space: KeyLayout, context: BackendContext) -> KeyedStateBackend:
    """A backend of dictionaries in memory."""
    return HashMapStateBackend(space, **context.arguments())


def leveldb(space: KeyLayout, context: BackendContext) -> KeyedStateBackend:
    """A backend with a bounded cache over files in ``local_dir``. The cached values are counted in
    ``memory``."""
    from penstock.state.leveldb import LevelDBStateBackend

    limit: Any = {} if context.cache_entries is None else {"cache_entries": context.cache_entries}
    return LevelDBStateBackend(
        space, Path(context.local_dir), memory=context.memory, **context.arguments(), **limit
    )


#: Name → factory.
BACKENDS: Register[BackendFactory] = Register(
    "state backend",
    "penstock.state_backends",
    builtin={"hashmap": "penstock.state.backends:hashmap", "leveldb": "penstock.state.backends:leveldb"},
    make=function,
    expected="a function factory(space, context) that returns a penstock.state.backend.KeyedStateBackend",
    error=SpecError,
)


def find_backend(name: str) -> BackendFactory:
    """The factory that ``state.backend.type`` names. Raises SpecError if it does not exist or cannot be
    imported."""
    if ":" in name and not name.startswith(IMPORT_PATH):
        name = IMPORT_PATH + name
    return BACKENDS.find(name, where=_WHERE)


def make_backend(name: str, space: KeyLayout, **context: Any) -> KeyedStateBackend:
    """The backend ``name`` for one subtask of an operator. ``context``: the fields of ``BackendContext``.

    Raises SpecError if the name is unknown, or if the factory returns something else than a backend.
    """
    made: object = find_backend(name)(space, BackendContext(**context))
    if not isinstance(made, KeyedStateBackend):
        raise SpecError(
            f"'{name}' gives no state backend",
            expected="a penstock.state.backend.KeyedStateBackend",
            got=f"an object of type {type(made).__name__}",
            where=_WHERE,
        )
    return made
