"""The node of unwindowed grouping, and the base class that it shares with windowed grouping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.functions.expr import AggregateCall, Expr, InputRef, input_refs
from penstock.functions.registry import is_deterministic
from penstock.jobgraph import specs as s
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, kept_columns, moved, referenced, with_rowtime
from penstock.plan.node import Node, Unary
from penstock.plan.properties import Properties
from penstock.plan.rewriting import substitute
from penstock.plan.words import calls_text, group_keys
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner

replace = msgspec.structs.replace


class Grouping(Unary, frozen=True, kw_only=True):
    """One row for each group: ``keys``, then ``aggregates``, then columns of the kind of grouping."""

    if TYPE_CHECKING:
        keys: tuple[int, ...]
        aggregates: tuple[AggregateCall, ...]

    def kept_calls(self, need: set[int]) -> list[int]:
        """The indices of the aggregates to keep if ``need`` of the node's columns are needed."""
        first = len(self.keys)
        return [i for i in range(len(self.aggregates)) if first + i in need]

    def own_columns(self, need: set[int], at: Mapping_, columns: list[int]) -> dict[str, Any]:
        """Changes of further fields when columns are pruned. Appends to ``columns`` the columns behind the
        aggregates that are kept."""
        return {}

    def also_reads(self) -> set[int]:
        """Columns of the input that the node reads besides keys and arguments."""
        return set()

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        calls = tuple(self.aggregates[i] for i in self.kept_calls(need))
        return [(self.input, set(self.keys) | referenced(calls) | self.also_reads())]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        child, at = pruner.run(self.input)
        kept = self.kept_calls(need)
        first = len(self.keys)
        columns = [*range(first), *(first + i for i in kept)]
        changes: dict[str, Any] = {
            "input": child,
            "keys": moved(self.keys, at),
            "aggregates": tuple(moved(self.aggregates[i], at) for i in kept),
            **self.own_columns(need, at, columns),
        }
        schema = with_rowtime(self.schema, self.schema.select(columns))
        return replace(self, schema=schema, **changes), kept_columns(columns)

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, {key: i for i, key in enumerate(self.keys)}),)

    def lowered(self, part: Expr) -> Expr | None:
        """Only conditions on keys go below, because they leave out whole groups."""
        columns, keys = input_refs(part), len(self.keys)
        if not columns or max(columns) >= keys or not is_deterministic(part):
            return None
        types = self.input.schema.types
        return substitute(part, [InputRef(k, types[k]) for k in self.keys])

    def layout(self, op: PlannedOperator, meaning: dict[str, str]) -> str:
        if not meaning:
            return ""
        types = self.input.schema.types
        calls = [
            f"{c.function}{' DISTINCT' if c.distinct else ''}({', '.join(str(types[a]) for a in c.args)}) {c.type}"
            for c in self.aggregates
        ]
        keys = [str(types[k]) for k in self.keys]
        return words.bounded("; ".join([*keys, *calls, meaning.get("window", ""), meaning["changes"]]))

    def cells(self, lineage: Lineage, spec: s.GroupAggregateSpec | s.WindowAggregateSpec) -> Meaning:
        """The meaning of a group's keys and cells."""
        below = lineage.of(self.input)
        row = words.typed(below.columns, self.input.schema.types)
        parts = {
            "keys": words.listed(row, self.keys),
            "input": below.rows,
            "changes": words.updates_words(spec.retracts),
        }
        if isinstance(spec, s.GroupAggregateSpec) and spec.bounded_final:
            parts["results"] = "at the end"
        calls = tuple(
            words.bounded(
                f"{words.call_words(c, below.columns)} of {', '.join(row[a] for a in c.args) or 'rows'}"
            )
            for c in self.aggregates
        )
        return parts, {"cells": calls}

    def check_group(self) -> list[Any]:
        """Checks the keys and the calls, and returns the types of their columns."""
        given = self.input.schema.types
        soundness.indices(self.keys, given)
        soundness.calls(self.aggregates, given)
        return [*(given[k] for k in self.keys), *(c.type for c in self.aggregates)]


class Aggregate(Grouping, frozen=True, kw_only=True, tag="aggregate"):
    """Unwindowed grouping: ``keys``, then aggregates. Grouping sets are an ``Expand`` below
    whose set number is one of the keys."""

    physical: ClassVar[str] = "penstock.plan.operators.aggregate.physical:aggregate"

    input: Node
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    #: How long a group is kept, ms; 0: for ever; None: ``table.exec.state.ttl``.
    lifetime: int | None = None
    schema: Schema

    def kept_calls(self, need: set[int]) -> list[int]:
        """Keeps one aggregate, so that a group without keys and needed aggregates has a row count."""
        kept = super().kept_calls(need)
        return [0] if not kept and self.aggregates and not self.keys else kept

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        # Without aggregates a row has nothing that could change: DISTINCT of an append-only input is
        # append-only.
        distinct_only = not self.aggregates and not inner.updating and bool(self.keys)
        return Properties(
            bounded=inner.bounded,
            updating=not distinct_only and not analysis.final,
            unique=(frozenset(range(len(self.keys))),),
        )

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return bool(self.keys) and empty[0]

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return set(range(len(self.keys))) <= key

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        columns = below.columns
        keys = tuple(columns[k] for k in self.keys)
        atom = words.bounded(f"groups({', '.join(sorted(keys))}) of {below.rows}")
        made = (*keys, *(words.bounded(f"{words.call_words(c, columns)} in {atom}") for c in self.aggregates))
        return words.opaque(below.tables, atom, made)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        assert isinstance(op.spec, s.GroupAggregateSpec)
        return self.cells(lineage, op.spec)

    def explained(self) -> str:
        names = self.input.schema
        return f"Aggregate({group_keys(self.keys, names)}{calls_text(self.aggregates, names)})"

    def check(self) -> None:
        soundness.types(self.schema.types, self.check_group())
