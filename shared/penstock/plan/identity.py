"""Names operators and describes the meaning of their state, once the operator graph is planned.

A name says which statement an operator works for, what it does, over which base tables, and which number it
has among operators of its kind there, counted from the sources. A new filter, column or statement changes no
name. The meaning of the state is described in the words of ``plan.lineage``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import SpecError
from penstock.jobgraph.identity import OperatorIdentity
from penstock.plan.earlier_ids import EarlierFingerprints
from penstock.plan.operator_graph import all_inputs
from penstock.plan.operators.sink.node import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.jobgraph.graph import FunctionArtifact
    from penstock.plan.lineage import Lineage, Meaning
    from penstock.plan.operator_graph import PlannedOperator


def identify(
    operators: Sequence[PlannedOperator], lineage: Lineage, functions: Mapping[str, FunctionArtifact]
) -> None:
    """Sets the identity and the uid of every operator. ``operators`` in topological order;
    ``functions``: the job's function table."""
    exact = EarlierFingerprints({name: _code(artifact) for name, artifact in functions.items()})
    statements = _statements(operators)
    names = _Names(operators, lineage)
    taken = _given(operators)
    for op in operators:
        meaning, columns = _meaning(op, lineage)
        op.identity = OperatorIdentity(
            given=op.given,
            names=names.of(op, statements[id(op)]),
            meaning=meaning,
            columns=columns,
            layout="" if op.node is None else op.node.layout(op, meaning),
            exact="" if op.node is None else f"{op.kind}-{exact.of(op.node)}",
            former=() if op.given else (op.uid,),
        )
        if not op.given:
            op.uid = _free(_uid(op, op.identity), taken)
            taken.add(op.uid)


def _code(artifact: FunctionArtifact) -> str:
    return hashlib.sha256(msgspec.json.encode(artifact)).hexdigest()[:16]


def _given(operators: Sequence[PlannedOperator]) -> set[str]:
    """The uids that the user gave. SpecError if two operators have the same."""
    by_uid: dict[str, str] = {}
    for op in operators:
        if op.given and op.uid in by_uid:
            raise SpecError(
                f"two operators have the uid '{op.uid}'",
                expected="one operator with that uid: its state is found by it",
                got=f"'{by_uid[op.uid]}' and '{op.name}'",
                remedy="give one of them another uid",
            )
        if op.given:
            by_uid[op.uid] = op.name
    return set(by_uid)


def _uid(op: PlannedOperator, identity: OperatorIdentity) -> str:
    data = msgspec.json.encode([sorted(identity.names), identity.digest])
    return f"{op.kind}-{hashlib.sha256(data).hexdigest()[:16]}"


def _free(wanted: str, taken: set[str]) -> str:
    uid, number = wanted, 0
    while uid in taken:
        number += 1
        uid = f"{wanted}-{number}"
    return uid


# -- names ---------------------------------------------------------------------------------


def _statements(operators: Sequence[PlannedOperator]) -> dict[int, tuple[str, ...]]:
    """Operator id → names of the statements that the operator feeds; a statement has one or two names."""
    found: dict[int, dict[str, None]] = {id(op): {} for op in operators}
    for op in reversed(operators):
        own = found[id(op)]
        if op.spec.is_sink and isinstance(op.node, Sink):
            own.update(dict.fromkeys(op.node.statement_names()))
        for inp in all_inputs(op):
            found[id(inp.source)].update(own)
    return {op: tuple(sorted(own)) for op, own in found.items()}


class _Names:
    def __init__(self, operators: Sequence[PlannedOperator], lineage: Lineage) -> None:
        self._lineage = lineage
        self._roles = {id(op): self._role(op) for op in operators}
        #: Operator id → role → number of operators of that role below the operator, on the longest path.
        self._below: dict[int, dict[str, int]] = {}
        for op in operators:
            below: dict[str, int] = {}
            for inp in all_inputs(op):
                source = inp.source
                for role, count in self._below[id(source)].items():
                    below[role] = max(below.get(role, 0), count)
                role = self._roles[id(source)]
                below[role] = max(below.get(role, 0), self._below[id(source)].get(role, 0) + 1)
            self._below[id(op)] = below
        #: Role → number of sources with that role. A source that is the only reader of its table needs no
        #: statement in its name.
        self._readers: dict[str, int] = {}
        for op in operators:
            if _reads(op):
                role = self._roles[id(op)]
                self._readers[role] = self._readers.get(role, 0) + 1

    def of(self, op: PlannedOperator, statements: Sequence[str]) -> tuple[str, ...]:
        role = self._roles[id(op)]
        if _reads(op) and self._readers[role] == 1:
            return (role,)
        number = self._below[id(op)].get(role, 0)
        name = f"{role} {number + 1}" if number else role
        return tuple(f"{statement}: {name}" for statement in statements)

    def _role(self, op: PlannedOperator) -> str:
        assert op.node is not None
        return "sink" if op.spec.is_sink else op.node.role(op, self._lineage)


def _reads(op: PlannedOperator) -> bool:
    return op.spec.is_source


# -- meaning -------------------------------------------------------------------------------


def _meaning(op: PlannedOperator, lineage: Lineage) -> Meaning:
    """(part → words, state → columns); both are empty for an operator without state."""
    keeps = op.spec.is_source or op.spec.is_sink or op.spec.keeps_state()
    return op.node.meaning(op, lineage) if op.node is not None and keeps else ({}, {})
