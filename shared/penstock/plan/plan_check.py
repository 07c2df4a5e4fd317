"""Checks that a logical plan is sound: the input of a node has every column that the node names, with its
type.

The check runs after every rule of the optimizer. Its error names the rule that broke the plan, and no broken
plan becomes a job. Only nodes that a rule made are checked, so the check costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.plan.rewriting import walk
from penstock.plan.soundness import Unsound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plan.node import Node
    from penstock.types.logical import LogicalType, Schema

REMEDY = "this is a mistake of Penstock's: report it with the statement; nothing was started"


class PlanChecker:
    """The checks of one optimisation. ``after(rule, roots)`` gives the roots back, or raises an
    InternalError that names the rule."""

    def __init__(self, roots: Sequence[Node]) -> None:
        self._sound: dict[int, Node] = {}
        self._outputs = [_columns(root.schema) for root in roots]
        self._clocks = _clocks(walk(roots))
        self.after("translation of the statement", roots)

    def after(self, rule: str, roots: Sequence[Node]) -> list[Node]:
        """Check the plan after a rule; return its nodes. Raises InternalError, which names the rule, if the
        plan is broken."""
        outputs = [_columns(root.schema) for root in roots]
        if outputs[: len(self._outputs)] != self._outputs:
            raise _broken(rule, "the plan's outputs", str(self._outputs), str(outputs))
        self._outputs = outputs
        nodes = walk(roots)
        clocks = _clocks(nodes)
        if not self._clocks <= clocks:
            raise _broken(rule, "event time", ", ".join(sorted(self._clocks)), ", ".join(sorted(clocks)))
        self._clocks = clocks
        for node in nodes:
            if id(node) not in self._sound:
                try:
                    check_node(node)
                except Unsound as err:
                    raise _broken(rule, type(node).__name__, err.expected, err.got) from None
                # A reference to the node keeps Python from giving its id to another node.
                self._sound[id(node)] = node
        return list(roots)


def _broken(rule: str, where: str, expected: str, got: str) -> InternalError:
    return InternalError(
        f"the rule '{rule}' of the planner made a plan that is not sound",
        expected=expected,
        got=got,
        where=where,
        remedy=REMEDY,
    )


def _clocks(nodes: Iterable[Node]) -> frozenset[str]:
    """What makes watermarks in the plan, in words (see ``Node.clock``)."""
    return frozenset(clock for node in nodes if (clock := node.clock()) is not None)


def _columns(schema: Schema) -> list[LogicalType]:
    return [f.type.with_nullable(True) for f in schema.fields]


def check_node(node: Node) -> None:
    """Checks a node over the declared schemas of its inputs."""
    names = node.schema.names
    if len(set(names)) != len(names):
        raise Unsound("columns of different names", str(names))
    if node.schema.rowtime is not None and node.schema.rowtime not in names:
        raise Unsound(f"a column '{node.schema.rowtime}' (the event time)", str(names))
    node.check()
