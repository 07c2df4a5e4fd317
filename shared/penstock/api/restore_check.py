"""Checks before a job starts whether the states that its functions declare can be read from a savepoint.

``python -m penstock.api.restore_check`` reads ``{"job_graph", "states"}`` (JSON; states: operator uid → state
name → the savepoint's description of the state) from standard input and writes, as the last line
of standard output, ``{"problems": [text]}``. Process functions declare their states in ``open``, so each
function is opened here with a context that only records the descriptors. A function whose ``open`` needs more
than that context is checked when the job starts.
"""

from __future__ import annotations

import asyncio
import copy
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError, SpecError
from penstock.jobgraph import JobGraph
from penstock.jobgraph.specs import KeyedProcessSpec, KeyedWindowSpec
from penstock.snapshots.compatibility import DeclaredStates
from penstock.state.descriptors import MapStateDescriptor
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.state.descriptors import StateDescriptor

#: Operator uid → state name → schema.
States = dict[str, dict[str, dict[str, Any]]]
#: Prefixes of the names of states that functions declare.
_DECLARED = ("value/", "list/", "map/", "reducing/", "aggregating/")
#: Matches a uid that the planner gave. Such a uid is derived from the operator's meaning, and so are the
#: operator's states.
_PLANNED_UID = re.compile(r"-[0-9a-f]{16}(-\d+)?")


class _Request(msgspec.Struct):
    job_graph: JobGraph
    states: States


class DeclarationContext:
    """Takes the place of the runtime context. It records the descriptors and offers hardly anything else."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self.declared: list[StateDescriptor] = []

    def get_job_parameter(self, key: str, default: str | None = None) -> str | None:
        return self._config.get(key, default)

    def get_index_of_this_subtask(self) -> int:
        return 0

    def _state(self, descriptor: StateDescriptor) -> None:
        self.declared.append(descriptor)

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _state


@dataclass(frozen=True)
class Declared:
    """The descriptors that a function's ``open`` asked for. ``complete``: ``open`` returned, so the
    descriptors are all there are."""

    descriptors: list[StateDescriptor]
    complete: bool


def declared_by(function: Any, config: Mapping[str, str]) -> Declared:
    """The states that a function's ``open`` asks for before it needs something that only a running job
    has."""
    context = DeclarationContext(config)
    opener = getattr(copy.deepcopy(function), "open", None)
    complete = True
    if opener is not None:
        try:
            opener(context)
        except Exception as err:
            sys.stderr.write(f"open() of {type(function).__name__} needs a running job: {err!r}\n")
            complete = False
    return Declared(context.declared, complete)


def problems_of(
    uid: str, stored: Mapping[str, dict[str, Any]], declared: list[StateDescriptor]
) -> Iterator[tuple[str, str]]:
    """(state name, sentence) for each state of the savepoint that cannot be read as it is declared."""
    from penstock.state.evolution import converter

    kinds = {name.partition("/")[2]: name for name in stored if name.startswith(_DECLARED)}
    for descriptor in declared:
        name = _stored_name(descriptor, stored)
        where = f"state '{descriptor.state_name}' of operator '{uid}'"
        if name is None:
            if descriptor.name in kinds:
                other = kinds[descriptor.name]
                yield other, f"{where}: it is '{other}' in the savepoint"
            continue
        fields = {"value": descriptor.stored_type}
        if isinstance(descriptor, MapStateDescriptor):
            fields = {"map_key": descriptor.key_type, "value": descriptor.type}
        for field, type_ in fields.items():
            raw = stored[name].get("types", {}).get(field)
            if raw is None:
                continue
            try:
                converter(msgspec.convert(raw, t.LogicalType), type_, where, descriptor.former_fields)
            except SpecError as err:
                yield name, f"{err.where}: declared {type_}; {err.got}"


def _stored_name(descriptor: StateDescriptor, stored: Mapping[str, Any]) -> str | None:
    return next((name for name in descriptor.state_names if name in stored), None)


def compared(uid: str, stored: Mapping[str, dict[str, Any]], declared: Declared) -> DeclaredStates:
    """Compares the states of one operator in the savepoint with the declared ones."""
    problems = list(problems_of(uid, stored, declared.descriptors))
    unreadable = {name for name, _ in problems}
    read = {name for d in declared.descriptors if (name := _stored_name(d, stored)) is not None}
    new = {
        d.state_name
        for d in declared.descriptors
        if _stored_name(d, stored) is None and d.name not in {name.partition("/")[2] for name in unreadable}
    }
    left = {name for name in stored if name.startswith(_DECLARED)} - read - unreadable
    return DeclaredStates(
        known=declared.complete,
        unread=tuple(sorted(left)),
        new=tuple(sorted(new)),
        unreadable=tuple(sorted(unreadable)),
        problems=tuple(text for _, text in problems),
    )


def _follow_from(uid: str, spec: Any) -> bool:
    """Whether the uid determines the operator's states. It does not for windows, whose functions may declare
    states of their own when they are called."""
    return _PLANNED_UID.search(uid) is not None and not isinstance(spec, KeyedWindowSpec)


async def declared_states(graph: JobGraph, states: States) -> dict[str, DeclaredStates]:
    """Operator uid → declared states, for every operator in ``states`` whose states do not follow from its
    uid."""
    from penstock.runtime.artifacts import load_functions

    found: dict[str, DeclaredStates] = {}
    nodes = {node.uid: node for vertex in graph.vertices for node in vertex.operators if node.uid in states}
    stored_elsewhere = any(artifact.key is not None for artifact in graph.functions.values())
    asked = {uid: n.spec for uid, n in nodes.items() if isinstance(n.spec, KeyedProcessSpec)}
    load = await load_functions(graph, None, Path.cwd()) if asked and not stored_elsewhere else None
    for uid in nodes:
        if uid in asked and load is not None:
            declared = declared_by(load(asked[uid].function), graph.config)
            found[uid] = compared(uid, states[uid], declared)
        elif uid in asked or (states[uid] and not _follow_from(uid, nodes[uid].spec)):
            found[uid] = DeclaredStates(known=False)
    return found


async def check(graph: JobGraph, states: States) -> list[str]:
    """A sentence for each state that cannot be read as the job's functions declare it."""
    return [text for found in (await declared_states(graph, states)).values() for text in found.problems]


def main() -> None:
    # The reply must be the last line of standard output, so everything else goes to standard error.
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    try:
        problems = asyncio.run(check(request.job_graph, request.states))
    except PenstockError as err:  # a function cannot be loaded: the start of the job reports it
        sys.stderr.write(f"{err}\n")
        problems = []
    with os.fdopen(out, "wb") as stream:
        stream.write(msgspec.json.encode({"problems": problems}) + b"\n")


if __name__ == "__main__":
    main()
