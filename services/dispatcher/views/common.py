"""Common parts of all answers: names of fields, times, ids and states."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.messages.states import ExecutionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.cluster import SubtaskDetails, VertexDetails

_E = ExecutionState
#: The state of a vertex is the first of these that one of its subtasks has.
_VERTEX_STATE = (
    _E.FAILED, _E.CANCELING, _E.CANCELED, _E.DEPLOYING, _E.INITIALIZING, _E.SCHEDULED, _E.CREATED,
    _E.RUNNING, _E.FINISHED,
)  # fmt: skip
#: The shares of back-pressured time above which the level is high or low, as in Flink.
HIGH, LOW = 0.5, 0.1
#: The place of a subtask that is on no task manager.
UNASSIGNED = "(unassigned)"
_ID = re.compile(r"[0-9a-f]{32}")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or a part of one, whose fields have the same names in JSON."""


class Kebab(Shape, frozen=True, kw_only=True, rename="kebab"):
    """An answer whose fields have names ``like-this`` in JSON."""


class Camel(Shape, frozen=True, kw_only=True, rename="camel"):
    """An answer whose fields have names ``likeThis`` in JSON."""


class Empty(Shape, frozen=True, kw_only=True):
    """``{}``: the request was carried out, and there is nothing to report."""


class Times(Kebab, frozen=True, kw_only=True):
    """Times in ms; -1: not yet."""

    start_time: int
    end_time: int
    duration: int


def times(start_ms: int | None, end_ms: int | None, now_ms: int) -> dict[str, Any]:
    """The fields of ``Times``."""
    start = start_ms if start_ms is not None else -1
    end = end_ms if end_ms is not None else -1
    duration = (end if end >= 0 else now_ms) - start if start >= 0 else -1
    return {"start_time": start, "end_time": end, "duration": duration}


def vertex_id(of: str) -> str:
    """The id of a vertex as 32 hex digits, as Flink's clients expect it. Vertices of a job on Spark have
    names as ids, which are hashed."""
    return of if _ID.fullmatch(of) else hashlib.sha256(of.encode()).hexdigest()[:32]


def attempt_number(attempt: int) -> int:
    """The number of an execution's attempt, counted from 0 as in Flink; Penstock counts from 1."""
    return max(0, attempt - 1)


def first_ms(subtasks: Iterable[SubtaskDetails]) -> int | None:
    """When the first of the subtasks was deployed, in ms; None: not yet."""
    found = (s.timestamps.get(_E.DEPLOYING.value) for s in subtasks)
    return min((t for t in found if t is not None), default=None)


def end_ms(subtask: SubtaskDetails) -> int | None:
    """When the subtask ended, in ms; None: not yet."""
    return subtask.timestamps.get(subtask.state.value) if subtask.state.terminal else None


def last_ms(subtasks: list[SubtaskDetails]) -> int | None:
    """When the last of the subtasks ended, in ms; None while one has not ended."""
    ends = [end_ms(s) for s in subtasks]
    return None if not ends or None in ends else max(e for e in ends if e is not None)


def state_of(subtasks: Iterable[SubtaskDetails]) -> str:
    """The state of a vertex, derived from its subtasks."""
    states = {s.state for s in subtasks}
    return next((state.value for state in _VERTEX_STATE if state in states), _E.CREATED.value)


def states_of(subtasks: Iterable[SubtaskDetails]) -> dict[str, int]:
    """Every execution state → number of subtasks in it."""
    counts = Counter(s.state.value for s in subtasks)
    return {state.value: counts.get(state.value, 0) for state in ExecutionState}


def state_times(subtask: SubtaskDetails) -> dict[str, int]:
    """Every execution state → when the subtask entered it, in ms; 0: it has not."""
    return {state.value: subtask.timestamps.get(state.value, 0) for state in ExecutionState}


def ratio(subtask: SubtaskDetails, what: str) -> float:
    """The share of time (0 to 1) in which the subtask is ``busy``, ``idle`` or ``back_pressured``."""
    return min(1.0, (subtask.metrics.get(f"{what}_ms_per_second") or 0.0) / 1000)


def backpressure_level(share: float) -> str:
    """The level for a share of back-pressured time."""
    return "high" if share > HIGH else "low" if share > LOW else "ok"


def accumulated(subtasks: Iterable[SubtaskDetails]) -> dict[str, int]:
    """The counters of the subtasks' operators, added up by name."""
    found: Counter[str] = Counter()
    for subtask in subtasks:
        for operator in subtask.metrics.get("operators", ()):
            found.update(operator.get("counters", {}))
    return dict(found)


def find_vertex(vertices: Iterable[VertexDetails], wanted: str) -> VertexDetails | None:
    """The vertex with this id, or with this id in the form of ``vertex_id``; None if there is none."""
    return next((v for v in vertices if wanted in (v.id, vertex_id(v.id))), None)
