"""Operator state of functions: lists and maps of a subtask, without keys, under Flink's names.

A ``CheckpointedFunction`` gets the state in ``initialize_state`` and may bring it up to date in ``snapshot_state``. The items of
a list are dealt out again when the parallelism changes, those of a union list go to every subtask, and a broadcast map
has the same content everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SnapshotError, SpecError, UnsupportedError
from penstock.operators.user_code import RuntimeContext
from penstock.state.broadcast import BroadcastState, BroadcastStates
from penstock.state.codec import codec
from penstock.state.descriptors import ListStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.operators.operator import OperatorContext
    from penstock.operators.user_code import UserFunction
    from penstock.snapshots.contract import RestoredState
    from penstock.state.descriptors import MapStateDescriptor

_LIST, _UNION = "operator-list/", "operator-union/"


class CheckpointedFunction:
    """A function with operator state: derive from it beside ``MapFunction``, ``ProcessFunction`` …

    A map, flat map, filter or process function may be one. It may also define ``notify_checkpoint_complete(checkpoint_id)``
    and ``notify_checkpoint_aborted(checkpoint_id)``.
    """

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once per subtask, before ``open``. ``context`` gives the state, restored if there is some."""
        raise NotImplementedError

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at each checkpoint: bring the state up to date. ``context`` has the checkpoint's id."""
        raise NotImplementedError


class FunctionSnapshotContext(msgspec.Struct, frozen=True):
    """``context`` of ``snapshot_state``. ``checkpoint_id``: the checkpoint's id."""

    checkpoint_id: int

    def get_checkpoint_id(self) -> int:
        """The checkpoint's id."""
        return self.checkpoint_id


class FunctionInitializationContext:
    """``context`` of ``initialize_state``.

    ``store``: the operator state; ``keyed``: gives keyed state; ``restored``: the checkpoint that the state is of, or None.
    """

    def __init__(self, store: OperatorStateStore, keyed: RuntimeContext, restored: int | None) -> None:
        self._store, self._keyed, self._restored = store, keyed, restored

    def is_restored(self) -> bool:
        """Whether the state is that of a checkpoint or savepoint."""
        return self._restored is not None

    def get_restored_checkpoint_id(self) -> int | None:
        """The id of that checkpoint; None after a new start."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        """Lists and maps of this subtask."""
        return self._store

    def get_keyed_state_store(self) -> RuntimeContext:
        """State of the key, as from ``open``'s context; of a keyed stream only."""
        return self._keyed


class OperatorListState:
    """A list of a subtask. ``items``: what it has."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def get(self) -> list[Any]:
        """A copy of the list."""
        return list(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        """Append ``value``."""
        self._items.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all ``values``."""
        self._items.extend(values)

    def update(self, values: Iterable[Any]) -> None:
        """Let ``values`` be the list."""
        self._items[:] = list(values)

    def clear(self) -> None:
        """Empty the list."""
        self._items.clear()


class _Item(msgspec.Struct):
    """An item in a snapshot. ``type``: its SQL type."""

    type: str
    data: bytes
    version: int = 1


class OperatorStateStore:
    """The operator state of one subtask. ``ctx``: the operator's context; ``restored``: what it is restored from."""

    def __init__(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        self._ctx = ctx
        self._broadcast = BroadcastStates(ctx.uid)
        #: State name in the snapshot → (its descriptor, its items).
        self._states: dict[str, tuple[ListStateDescriptor, list[Any]]] = {}
        self._restored: dict[str, list[bytes]] = {}
        if restored is not None:
            self._broadcast.restore(restored)
            for kind, prefix in ((restored.lists, _LIST), (restored.unions, _UNION)):
                self._restored.update({n: items for n, items in kind.items() if n.startswith(prefix)})

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """The list that ``descriptor`` declares. Its items are dealt out to the subtasks when their number changes.

        Raises:
            SpecError: It declares no list.
            SnapshotError: The restored items have another type.
        """
        return self._state(descriptor, _LIST)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """The list that ``descriptor`` declares. After a restore every subtask has the items of all.

        Raises:
            SpecError: It declares no list.
            SnapshotError: The restored items have another type.
        """
        return self._state(descriptor, _UNION)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        """The map that ``descriptor`` declares. Every subtask must bring it to the same content; each restores it whole."""
        return self._broadcast.state(descriptor)

    def _state(self, descriptor: ListStateDescriptor, prefix: str) -> OperatorListState:
        if not isinstance(descriptor, ListStateDescriptor):
            raise SpecError("no list state", expected="ListStateDescriptor(name, type)", got=repr(descriptor))
        name = prefix + descriptor.name
        if name not in self._states:
            former = (prefix + old for old in descriptor.former_names)
            found = next((n for n in (name, *former) if n in self._restored), None)
            items = [] if found is None else self._decoded(descriptor, self._restored.pop(found))
            self._states[name] = (descriptor, items)
        return OperatorListState(self._states[name][1])

    def _decoded(self, descriptor: ListStateDescriptor, items: list[bytes]) -> list[Any]:
        type_ = descriptor.type
        values = []
        for raw in items:
            try:
                item = msgspec.msgpack.decode(raw, type=_Item)
            except msgspec.MsgspecError as err:
                raise SnapshotError(
                    "an item of operator state cannot be read", got=str(err), where=self._where(descriptor)
                ) from err
            if item.type != str(type_):
                raise SnapshotError(
                    "operator state has another type than the function declares",
                    expected=item.type,
                    got=str(type_),
                    where=self._where(descriptor),
                    remedy="declare the type that the savepoint has, or give the new state another name",
                )
            values.append(codec(type_).decode(item.data))
        return values

    def _where(self, descriptor: ListStateDescriptor) -> str:
        return f"state '{descriptor.name}' of operator '{self._ctx.name}'"

    def snapshot(self) -> tuple[dict[str, list[bytes]], dict[str, list[bytes]]]:
        """(list items, union items) of a snapshot. State that was restored and not asked for is kept."""
        out = {
            name: [
                msgspec.msgpack.encode(_Item(str(descriptor.type), codec(descriptor.type).encode(value)))
                for value in items
            ]
            for name, (descriptor, items) in self._states.items()
        }
        # Every subtask restored the whole union, so one of them keeps it.
        kept = {n: v for n, v in self._restored.items() if n.startswith(_LIST) or not self._ctx.subtask_index}
        out = {**kept, **out}
        unions = {n: v for n, v in out.items() if n.startswith(_UNION)}
        unions.update(self._broadcast.snapshot(self._ctx.subtask_index))
        return {n: v for n, v in out.items() if n.startswith(_LIST)}, unions


class FunctionState:
    """The operator state of a user's function, and the calls that it gets for it.

    ``function``: the operator's function; ``ctx``: its context; ``restored``: what it is restored from; ``keyed``: gives its keyed
    state.
    """

    def __init__(
        self,
        function: UserFunction,
        ctx: OperatorContext,
        restored: RestoredState | None,
        keyed: RuntimeContext,
    ) -> None:
        self._function = function
        self._object = part_with_state(function.object)
        self._store = OperatorStateStore(ctx, restored)
        if self._object is not None:
            checkpoint = None if restored is None else restored.checkpoint_id
            context = FunctionInitializationContext(self._store, keyed, checkpoint)
            self._call("initialize_state", context)

    def snapshot(self, checkpoint_id: int) -> tuple[dict[str, list[bytes]], dict[str, list[bytes]]]:
        """(list items, union items), after the function has brought its state up to date."""
        if self._object is None:
            return {}, {}
        self._call("snapshot_state", FunctionSnapshotContext(checkpoint_id))
        return self._store.snapshot()

    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is complete."""
        self._call("notify_checkpoint_complete", checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was aborted."""
        self._call("notify_checkpoint_aborted", checkpoint_id)

    def _call(self, name: str, argument: Any) -> None:
        method: Callable[[Any], None] | None = getattr(self._object, name, None)
        if method is not None:
            try:
                method(argument)
            except (SnapshotError, SpecError, UnsupportedError):
                raise
            except Exception as err:
                raise self._function.error(err, None, name) from err


def part_with_state(function: Any) -> CheckpointedFunction | None:
    """The function, or the one that it adapts, if that has operator state; None otherwise."""
    while function is not None:
        if isinstance(function, CheckpointedFunction):
            return function
        function = getattr(function, "function", None)
    return None
