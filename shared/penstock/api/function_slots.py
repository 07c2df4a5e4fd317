"""Checks, where the program names a function, that the methods which will be called are plain functions or
generators as needed.

Calling an ``async def`` gives a coroutine, and calling a function with ``yield`` gives a generator. Neither
is the value that was meant, and ``filter`` would take both for true.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError, UnsupportedError
from penstock.operators.operator_state import CheckpointedFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The place where a function is used → its methods that give one value, and its methods that give any number.
_METHODS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "map": (("map",), ()),
    "flat_map": ((), ("flat_map",)),
    "filter": (("filter",), ()),
    "reduce": (("reduce",), ()),
    "aggregate": (("create_accumulator", "add", "get_result", "merge"), ()),
    "process": ((), ("process_element", "on_timer")),
    "co-process": ((), ("process_element1", "process_element2", "on_timer")),
    "broadcast-process": ((), ("process_element", "process_broadcast_element", "on_timer")),
    "co-map": (("map1", "map2"), ()),
    "co-flat-map": ((), ("flat_map1", "flat_map2")),
    "window": (("clear",), ("process", "apply")),
    "interval join": (("process_element",), ()),
    "key_by": (("get_key",), ()),
    "partition_custom": (("partition",), ()),
    "timestamp assigner": (("extract_timestamp",), ()),
    "evictor": (("evict_before", "evict_after"), ()),
    "window assigner": (("get_default_trigger", "is_event_time", "merge_windows"), ("assign_windows",)),
    "co-group": ((), ("co_group",)),
    "window join": (("join",), ()),
    "flat window join": ((), ("flat_join",)),
    "trigger": (("on_element", "on_event_time", "on_processing_time", "on_merge", "clear"), ()),
}
_LIFE = ("open", "close")


#: Where a function may have operator state.
_WITH_STATE = (
    "map",
    "flat_map",
    "filter",
    "process",
    "co-process",
    "broadcast-process",
    "co-map",
    "co-flat-map",
)


def check_function(function: Any, of: str, on_error: str = "fail") -> None:
    """Raises UnsupportedError for an async function or operator state that would not be kept, and SpecError for a generator
    where one value is needed. ``of``: a key of ``_METHODS``; ``on_error``: the error policy."""
    if isinstance(function, CheckpointedFunction) and (of not in _WITH_STATE or on_error != "fail"):
        raise UnsupportedError(
            f"operator state of {type(function).__name__} ({of}, on_error='{on_error}')",
            expected=f"a CheckpointedFunction as {', '.join(_WITH_STATE)}, with on_error='fail'",
            got="a skipped record's changes could not be undone" if of in _WITH_STATE else of,
            remedy="keep the state in a process function before or after it, or use keyed state",
        )
    single, many = _METHODS[of]
    found = [(name, getattr(function, name)) for name in (*single, *many) if hasattr(function, name)]
    if not found and callable(function):
        found = [((single or many)[0], function)]
    for name, target in (*found, *_life(function)):
        kinds = _kinds(target)
        shown = _shown(function, name)
        if "async" in kinds:
            raise UnsupportedError(
                f"{shown} is async: {of} of a stream calls plain functions",
                expected="a plain function (def)",
                got="async def",
                remedy="make it a plain function, or an AsyncFunction for AsyncDataStream.unordered_wait, which awaits "
                "many records at once",
            )
        if "generator" in kinds and name not in many:
            raise SpecError(
                f"{shown} yields: {of} takes the one value that its function returns",
                expected="return",
                got="a generator function",
                remedy="return the value; flat_map and process functions may yield any number",
            )


def _life(function: Any) -> Iterable[tuple[str, Any]]:
    if inspect.isroutine(function) or isinstance(function, (type, functools.partial)):
        return ()
    return [(name, getattr(function, name)) for name in _LIFE if hasattr(function, name)]


def _kinds(target: Any) -> set[str]:
    calls = [target] if inspect.isroutine(target) or isinstance(target, functools.partial) else []
    calls = calls or [type(target).__call__]  # type: ignore[list-item]
    kinds = set()
    for call in calls:
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
            kinds.add("async")
        if inspect.isgeneratorfunction(call):
            kinds.add("generator")
    return kinds


def _shown(function: Any, name: str) -> str:
    if hasattr(function, name) and not inspect.isroutine(function):
        return f"{type(function).__name__}.{name}"
    return f"'{getattr(function, '__name__', type(function).__name__)}'"
