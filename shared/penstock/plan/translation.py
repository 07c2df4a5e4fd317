"""Translates logical nodes into operators with specs, partitioning and parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import ON_ERROR, RUNTIME_MODE, STATE_TTL_MS
from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Global, Hash
from penstock.plan.changelog import ChangelogModes
from penstock.plan.earlier_ids import EarlierFingerprints
from penstock.plan.identity import identify
from penstock.plan.lineage import Lineage
from penstock.plan.operator_graph import OperatorInput, PlannedOperator
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import Interner, walk
from penstock.plan.words import lifetime_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.jobgraph.graph import FunctionArtifact
    from penstock.plan.node import Node
    from penstock.plan.nodes import LogicalPlan
    from penstock.plan.operator_graph import Note
    from penstock.plan.operators.sink.node import Sink


def is_bounded_final(plan: LogicalPlan) -> bool:
    """Whether the job gives final rows once: all inputs are bounded, and streaming mode was not asked for."""
    mode = RUNTIME_MODE.read(plan.config)
    bounded = all(Analysis().of(sink).bounded for sink in plan.sinks)
    changes = sorted(name for node in walk(plan.sinks) if (name := node.changes()) is not None)
    if mode == "BATCH" and not bounded:
        raise UnsupportedError(
            "the job is unbounded, but batch mode is set",
            expected="bounded inputs with execution.runtime-mode = BATCH",
            got="an unbounded source",
            remedy="SET 'execution.runtime-mode' = 'STREAMING', or bound the sources",
        )
    if mode == "BATCH" and changes:
        raise UnsupportedError(
            f"table '{changes[0]}', whose rows are updated, in batch mode",
            expected="tables of inserts alone with execution.runtime-mode = BATCH",
            got="a changelog",
            remedy="SET 'execution.runtime-mode' = 'STREAMING'",
        )
    return bounded and mode != "STREAMING" and not changes


class Translator:
    """One translation of a plan's nodes into operators. Each node makes its own operators
    (``Node.translate``).

    Args:
        plan: The logical plan. analysis: The properties of the plan's nodes. parallelism: The job's default
        parallelism. originals: Fingerprint → the node at the same place in the plan of the version before
        (``plan.earlier_ids``). functions: The job's Python functions by id.
    """

    def __init__(
        self,
        plan: LogicalPlan,
        analysis: Analysis,
        parallelism: int,
        originals: Mapping[str, Node] | None = None,
        functions: Mapping[str, FunctionArtifact] | None = None,
    ) -> None:
        self.plan = plan
        self.config = plan.config
        self.parallelism = parallelism
        self.ttl_ms = STATE_TTL_MS.read(plan.config)
        self.on_error: Any = ON_ERROR.read(plan.config)
        self.interner = Interner()
        self.earlier = EarlierFingerprints()
        self.originals = originals or {}
        self.functions = functions or {}
        self.sinks: list[Sink] = [self.interner.intern(sink) for sink in plan.sinks]  # type: ignore[misc]
        self.analysis = analysis
        self.modes = ChangelogModes(self.sinks, analysis)
        self.operators: list[PlannedOperator] = []
        self.memo: dict[int, OperatorInput] = {}
        self._uids: dict[str, int] = {}

    def translate(self) -> list[PlannedOperator]:
        """Makes the operators of the plan, and returns them in topological order."""
        done: set[int] = set()
        for sink in self.sinks:
            if id(sink) not in done:
                done.add(id(sink))
                sink.translate(self)
        identify(self.operators, Lineage(), self.functions)
        return self.operators

    def visit(self, node: Node) -> OperatorInput:
        """The output of an operator that has the node's rows. The node is translated once."""
        found = self.memo.get(id(node))
        if found is None:
            made = node.translate(self)
            found = OperatorInput(made) if isinstance(made, PlannedOperator) else made
            self.memo[id(node)] = found
        return OperatorInput(found.source, found.partitioning, found.tag)

    def add(
        self,
        node: Node,
        kind: str,
        name: str,
        spec: s.Spec,
        inputs: Sequence[OperatorInput | list[OperatorInput]],
        *,
        output: Schema | None = None,
        parallelism: int | None = None,
        hashed: tuple[int, ...] | None = None,
        uid: str | None = None,
        keeps: str = "",
        side_outputs: dict[str, Schema] | None = None,
        guarantee: str = "",
        mode: str | None = None,
        notes: tuple[Note, ...] = (),
    ) -> PlannedOperator:
        """A new operator of ``node``.

        Args:
            node: The node that the operator belongs to.
            kind: Which part of the node the operator does; names and uids contain it.
            name: As plans and the dashboard show it.
            spec: What the operator does, as data.
            inputs: One element for each input: a producer, or a list of several.
            output: The operator's columns; None: the node's.
            parallelism: Number of subtasks; None: that of its producers.
            hashed: The columns by which the output is partitioned; None: not known.
            uid: The uid that the user gave; None: a uid is made.
            keeps: The operator's state in words, with its size.
            side_outputs: Tag → columns.
            guarantee: The guarantee of a source or sink, in words.
            mode: Changelog mode of the output; None: the node's.
            notes: Notes for EXPLAIN.
        """
        ports = [i if isinstance(i, list) else [i] for i in inputs]
        if parallelism is None:
            parallelism = max(
                (i.source.parallelism for port in ports for i in port), default=self.parallelism
            )
        op = PlannedOperator(
            uid=uid or self.earlier_uid(kind, node),
            name=name,
            spec=spec,
            inputs=ports,
            output=output or node.schema,
            parallelism=parallelism,
            side_outputs=side_outputs or {},
            hashed=hashed,
            mode=mode or self.modes.mode(node),
            keeps=keeps,
            guarantee=guarantee,
            notes=notes,
            node=node,
            kind=kind,
            given=uid is not None,
        )
        self.operators.append(op)
        return op

    def earlier_uid(self, kind: str, node: Node) -> str:
        """The uid that the version before gave to the operator that does the part ``kind`` of ``node``."""
        original = self.originals.get(self.interner.fingerprint(node), node)
        wanted = f"{kind}-{self.earlier.of(original)}"
        seen = self._uids.get(wanted, 0)
        self._uids[wanted] = seen + 1
        return wanted if not seen else f"{wanted}-{seen}"

    def keyed(self, inp: OperatorInput, keys: tuple[int, ...]) -> tuple[OperatorInput, int]:
        """The input ``inp`` partitioned by the columns ``keys``, and the parallelism behind it."""
        if not keys:
            same = inp.source.parallelism == 1
            return OperatorInput(inp.source, None if same else Global(), inp.tag), 1
        if inp.tag is None and inp.source.hashed == keys and inp.source.parallelism == self.parallelism:
            return OperatorInput(inp.source, None, inp.tag), self.parallelism
        return OperatorInput(inp.source, Hash(keys), inp.tag), self.parallelism

    def single(self, inp: OperatorInput) -> OperatorInput:
        """The input ``inp`` with all rows in one subtask."""
        return self.keyed(inp, ())[0]

    def shared(self, node: Node) -> bool:
        """Whether ``node`` has been translated already, for another reader of its rows."""
        return id(node) in self.memo

    def ttl_words(self) -> str:
        """How long state is kept, in words."""
        return lifetime_text(self.ttl_ms)
