"""Which vertices restart together, and which share a slot. Pure.

A *region* is a set of vertices that edges connect. A slot is a process of one attempt, so regions that
share slots restart together. With ``jobmanager.execution.failover-strategy: region`` each region gets
slots of its own if the cluster has enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import config as keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.jobgraph import JobGraph

#: (slot group, number of the slot in the group).
Place = tuple[str, int]


class _Union:
    """Disjoint sets."""

    def __init__(self, members: Iterable[str]) -> None:
        self._parent = {m: m for m in members}

    def find(self, member: str) -> str:
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def join(self, a: str, b: str) -> None:
        self._parent[self.find(b)] = self.find(a)

    def sets(self) -> list[frozenset[str]]:
        """The sets, in order of their first members."""
        found: dict[str, list[str]] = {}
        for member in self._parent:
            found.setdefault(self.find(member), []).append(member)
        return [frozenset(members) for members in found.values()]


def regions_of(graph: JobGraph) -> list[frozenset[str]]:
    """The vertex ids of each region, in the order of their first vertices."""
    union = _Union(v.id for v in graph.vertices)
    for edge in graph.edges:
        union.join(edge.source, edge.target)
    return union.sets()


class Layout:
    """Which vertices share slots and restart together. ``apart``: each region has slots of its own.
    Otherwise, and with the strategy ``full``, the slot sharing groups are the user's."""

    def __init__(self, graph: JobGraph, config: Mapping[str, str]) -> None:
        self._graph = graph
        self._regional = keys.FAILOVER_STRATEGY.read(config) == "region"
        self._regions = regions_of(graph)
        self.all = frozenset(v.id for v in graph.vertices)
        self._number = {v: i for i, region in enumerate(self._regions) for v in region}
        self.apart = False
        together = self.slots_needed
        self.apart = self._regional and len(self._regions) > 1
        #: Whether keeping regions apart takes more slots than the job needs otherwise.
        self.can_join = self.slots_needed > together
        self._units = self._find_units()

    def join(self) -> None:
        """From now on regions share slots and restart together."""
        self.apart = self.can_join = False
        self._units = self._find_units()

    def group(self, vertex_id: str) -> str:
        """The slot group of a vertex."""
        group = self._graph.vertex(vertex_id).slot_sharing_group
        number = self._number[vertex_id]
        return f"{group}#{number}" if self.apart and number else group

    @property
    def groups(self) -> dict[str, int]:
        """Slot group → number of its slots, as many as its largest vertex needs."""
        needed: dict[str, int] = {}
        for vertex in self._graph.vertices:
            group = self.group(vertex.id)
            needed[group] = max(needed.get(group, 0), vertex.parallelism * vertex.slots)
        return needed

    @property
    def together(self) -> bool:
        """Whether all slots should be on one task manager."""
        return any(vertex.slots > 1 for vertex in self._graph.vertices)

    @property
    def slots_needed(self) -> int:
        """The number of slots of all groups."""
        return sum(self.groups.values())

    def place(self, vertex_id: str, subtask_index: int) -> Place:
        """The place of a subtask."""
        return self.group(vertex_id), subtask_index

    def places(self) -> list[Place]:
        """All places."""
        return [(group, index) for group, size in self.groups.items() for index in range(size)]

    def _find_units(self) -> dict[str, frozenset[str]]:
        if not self._regional:
            return dict.fromkeys(self.all, self.all)
        union = _Union(v.id for v in self._graph.vertices)
        for edge in self._graph.edges:
            union.join(edge.source, edge.target)
        first: dict[str, str] = {}
        for vertex in self._graph.vertices:
            union.join(first.setdefault(self.group(vertex.id), vertex.id), vertex.id)
        return {v: unit for unit in union.sets() for v in unit}

    def unit(self, vertices: Iterable[str]) -> frozenset[str]:
        """All vertices that restart when these do."""
        found: set[str] = set()
        for vertex_id in vertices:
            found |= self._units[vertex_id]
        return frozenset(found)
