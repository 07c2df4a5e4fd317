"""Would the states that a program declares be read from a savepoint? Asked before it starts.

``python -m penstock.api.restore_check`` reads ``{"job_graph", "states"}`` (JSON; states: operator
uid → state name → what the savepoint says of it) from standard input and writes, as the last line
of standard output, ``{"problems": [text]}``. Process functions declare their states when they are
opened: so each is opened here, with a context that only notes what it asks for. One that needs
more than that for its ``open`` is not judged here but when it starts.
"""

from __future__ import annotations

import asyncio
import copy
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError, SpecError
from penstock.jobgraph import JobGraph
from penstock.jobgraph.specs import KeyedProcessSpec
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.runtime.state.descriptors import StateDescriptor

#: Operator uid → state name → schema.
States = dict[str, dict[str, dict[str, Any]]]


class _Request(msgspec.Struct):
    job_graph: JobGraph
    states: States


class DeclarationContext:
    """In place of the runtime context: notes the descriptors; everything else is not there."""

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


def declared_by(function: Any, config: Mapping[str, str]) -> list[StateDescriptor]:
    """What a function's ``open`` asks for, as far as it comes without a running job."""
    context = DeclarationContext(config)
    opener = getattr(copy.deepcopy(function), "open", None)
    if opener is not None:
        try:
            opener(context)
        except Exception as err:
            sys.stderr.write(f"open() of {type(function).__name__} needs a running job: {err!r}\n")
    return context.declared


def problems_of(
    uid: str, stored: Mapping[str, dict[str, Any]], declared: list[StateDescriptor]
) -> Iterator[str]:
    """A sentence for each state that is there and cannot be read as it is declared."""
    from penstock.runtime.state.evolution import converter

    kinds = {name.partition("/")[2]: name for name in stored if "/" in name}
    for descriptor in declared:
        schema = next((stored[name] for name in descriptor.state_names if name in stored), None)
        where = f"state '{descriptor.state_name}' of operator '{uid}'"
        if schema is None:
            if descriptor.name in kinds:
                yield f"{where}: it is '{kinds[descriptor.name]}' in the savepoint"
            continue
        fields = {"value": descriptor.stored_type}
        if descriptor.kind == "map":
            fields = {"map_key": descriptor.key_type, "value": descriptor.type}  # type: ignore[attr-defined]
        for field, type_ in fields.items():
            raw = schema.get("types", {}).get(field)
            if raw is None:
                continue
            try:
                converter(msgspec.convert(raw, t.LogicalType), type_, where, descriptor.former_fields)
            except SpecError as err:
                yield f"{err.where}: declared {type_}; {err.got}"


async def check(graph: JobGraph, states: States) -> list[str]:
    from penstock.runtime.artifacts import load_functions

    nodes = [
        node
        for vertex in graph.vertices
        for node in vertex.operators
        if isinstance(node.spec, KeyedProcessSpec) and node.uid in states
    ]
    if not nodes or any(artifact.key is not None for artifact in graph.functions.values()):
        return []
    load = await load_functions(graph, None, Path.cwd())
    found: list[str] = []
    for node in nodes:
        assert isinstance(node.spec, KeyedProcessSpec)
        declared = declared_by(load(node.spec.function), graph.config)
        found += problems_of(node.uid, states[node.uid], declared)
    return found


def main() -> None:
    # The reply is the last line of standard output: nothing else may reach it.
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    try:
        problems = asyncio.run(check(request.job_graph, request.states))
    except PenstockError as err:  # a function that cannot be loaded: said when the job starts
        sys.stderr.write(f"{err}\n")
        problems = []
    with os.fdopen(out, "wb") as stream:
        stream.write(msgspec.json.encode({"problems": problems}) + b"\n")


if __name__ == "__main__":
    main()
