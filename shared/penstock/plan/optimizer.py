"""Makes an optimised logical plan of a logical plan.

The rules, in order: push predicates down (equalities become join keys), merge windows into aggregates,
recognise Top-N, versioned views, window joins and interval joins, push equalities into sources that apply
them, skip partitions, attach the sink of late data, remove unused columns, await async functions in operators
of their own. Equal sub-plans are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.config import SOURCE_PUSH_DOWN, is_batch
from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import WatermarkSpec
from penstock.jobgraph.specs.parts import FOR_EVER_US
from penstock.plan import nodes as n
from penstock.plan.asynchronous import split_async
from penstock.plan.constants import assume
from penstock.plan.empty import without_rows
from penstock.plan.keys import check_keys
from penstock.plan.nested import flatten_rows
from penstock.plan.operators.filter.node import filtered
from penstock.plan.partition_pruning import prune_partitions
from penstock.plan.plan_check import PlanChecker
from penstock.plan.properties import Analysis
from penstock.plan.pruning import prune
from penstock.plan.pushdown import PushDown
from penstock.plan.rewriting import Interner, bottom_up, conjuncts, walk
from penstock.plan.rules import merge_projects, merge_window_table, rank_to_top_n, recognise_join
from penstock.plan.versions import read_versions
from penstock.plan.watermark_calls import check_watermark_calls

replace = msgspec.structs.replace

#: ``(table, columns needed, {physical column: storage constant}) -> the constants that the connector applies
#: itself``.
SourcePushDown = Callable[[n.TableRef, Sequence[int], Mapping[int, Any]], Mapping[str, Any]]

LATE_TAG = "late"


def optimize(
    plan: n.LogicalPlan,
    push_down: SourcePushDown | None = None,
    late_sink: n.TableRef | None = None,
    *,
    as_one_job: bool = True,
) -> n.LogicalPlan:
    """Optimises a plan.

    ``late_sink``: the table of ``table.exec.late-data.table``, for late rows of window aggregates.
    ``as_one_job``: consumers of one table share its source and its filters, and no consumer changes the
    state of another. Otherwise each consumer gets the plan that is best for it alone. That is so on Spark,
    which keeps no state, and it was so in the version before.
    """
    roots: list[n.Node] = list(plan.sinks)
    # All rules use one interner, because it then looks only at the nodes that a rule has changed.
    share = Interner().intern_all
    bound = Analysis()
    _apply(roots, lambda node: check_watermark_calls(node, bound))
    # This rule runs before the checks begin: it removes sources, and the checker would miss their watermarks.
    roots = _apply(share(roots), without_rows)
    after = PlanChecker(roots).after
    roots = after("sharing", share(roots))
    pusher = PushDown(roots)
    roots = after("predicate push-down", [pusher.run(r) for r in roots])
    roots = after("merging of projections", _apply(roots, merge_projects))
    roots = after("windows into aggregates", _apply(roots, merge_window_table))
    analysis = Analysis()
    roots = after("Top-N", _apply(roots, lambda node: rank_to_top_n(node, analysis)))
    analysis = Analysis()
    roots = after("versions", _apply(roots, lambda node: read_versions(node, analysis)))
    roots = after("window and interval joins", _apply(roots, lambda node: recognise_join(node, analysis)))
    if push_down is not None and SOURCE_PUSH_DOWN.read(plan.config):
        roots = share(roots)
        readers = _readers(roots) if as_one_job else {}
        pushed = _apply(roots, lambda node: _into_source(node, push_down, readers))
        roots = share(after("push-down into sources", pushed))
        readers = _readers(roots) if as_one_job else {}
        kept = _apply(roots, lambda node: prune_partitions(node, readers))
        roots = after("partition pruning", kept)
    if late_sink is not None:
        roots = after("late data", _attach_late(roots, late_sink))
    roots = after("nested projection", flatten_rows(share(roots)))
    roots = share(roots)
    roots = after("column pruning", prune(roots, narrow=as_one_job))  # type: ignore[arg-type]
    roots = after("merging of projections", _apply(roots, merge_projects))
    roots = after("async functions", _apply(roots, split_async))
    if is_batch(plan.config):
        roots = after("no late data in batch mode", _apply(roots, _never_late))
    roots = after("sharing", share(roots))
    check_keys(walk(roots))
    return replace(plan, sinks=tuple(roots))


def _never_late(node: n.Node) -> n.Node:
    """Delays the watermarks of a job in mode BATCH to the end of its input, as Flink does, so that no row is
    late."""
    return node.with_watermarks(_at_the_end)


def _at_the_end(watermark: WatermarkSpec) -> WatermarkSpec:
    return replace(watermark, expr=None, delay_us=FOR_EVER_US)


def _apply(roots: list[n.Node], rule: Callable[[n.Node], n.Node]) -> list[n.Node]:
    memo: dict[int, tuple[Any, ...]] = {}
    return [bottom_up(r, rule, memo) for r in roots]


def _readers(roots: list[n.Node]) -> dict[int, list[n.Node]]:
    """Id of a scan → all nodes that read the scan."""
    out: dict[int, list[n.Node]] = {}
    for node in walk(roots):
        for child in n.inputs_of(node):
            if isinstance(child, n.Scan):
                out.setdefault(id(child), []).append(node)
    return out


def _equalities(node: n.Node) -> dict[int, tuple[Expr, Any]]:
    """Physical column → (the condition, the constant) of a filter over a scan."""
    equals: dict[int, tuple[Expr, Any]] = {}
    if isinstance(node, n.Filter) and isinstance(node.input, n.Scan):
        for part in conjuncts(node.condition):
            found = _equality(part, node.input)
            if found is not None:
                equals.setdefault(found[0], (part, found[1]))
    return equals


def _into_source(node: n.Node, push_down: SourcePushDown, readers: Mapping[int, list[n.Node]]) -> n.Node:
    """Moves ``column = constant`` from a filter into the scan below, if the connector applies the condition
    itself and all ``readers`` of the scan ask for the same."""
    if not isinstance(node, n.Filter) or not isinstance(node.input, n.Scan):
        return node
    scan = node.input
    equals = _equalities(node)
    for other in readers.get(id(scan), []):
        theirs = _equalities(other)
        equals = {c: x for c, x in equals.items() if c in theirs and theirs[c][1] == x[1]}
    if not equals:
        return node
    physical = scan.table.physical
    constants = {column: value for column, (_, value) in equals.items()}
    pushed = dict(push_down(scan.table, tuple(range(len(physical))), constants))
    names = physical.names
    applied = {c for c, value in constants.items() if names[c] in pushed and pushed[names[c]] == value}
    if not applied:
        return node
    rest = [p for p in conjuncts(node.condition) if p not in [equals[c][0] for c in applied]]
    facts = {c: Literal(constants[c], physical.types[c].not_null) for c in applied}
    table = scan.table
    if table.computed is not None:
        table = replace(
            table,
            computed=tuple(assume(e, facts) for e in table.computed),
            declared=table.declared if table.declared is not None else table.computed,
        )
    return filtered(replace(scan, table=table, pushed={**scan.pushed, **pushed}), rest)


def _equality(part: Expr, scan: n.Scan) -> tuple[int, Any] | None:
    """(physical column, constant) of ``column = constant`` over a scan's output."""
    if not isinstance(part, Call) or part.function != "=" or len(part.args) != 2:
        return None
    left, right = part.args
    if isinstance(left, Literal):
        left, right = right, left
    if not isinstance(left, InputRef) or not isinstance(right, Literal) or right.value is None:
        return None
    column = scan.projection[left.index] if scan.projection is not None else left.index
    if scan.table.computed is not None:
        source = scan.table.computed[column]
        if not isinstance(source, InputRef) or source.index >= len(scan.table.physical):
            return None
        column = source.index
    return column, right.value


# -- late data ---------------------------------------------------------------------------------


def _attach_late(roots: list[n.Node], table: n.TableRef) -> list[n.Node]:
    """Lets every event-time window aggregate over rows send its late rows to the table."""
    tagged: list[n.WindowAggregate] = []

    def tag(node: n.Node) -> n.Node:
        if (
            isinstance(node, n.WindowAggregate)
            and node.windowed_input is None
            and node.window.time is not None
        ):
            node = replace(node, late_tag=LATE_TAG)
            tagged.append(node)
        return node

    roots = _apply(roots, tag)
    unique: dict[str, n.WindowAggregate] = {}
    interner = Interner()
    for node in tagged:
        shared = interner.intern(node)
        unique.setdefault(interner.fingerprint(shared), node)
    for number, node in enumerate(unique.values()):
        name = table.name if number == 0 else f"{table.name} {number + 1}"
        roots.append(_late_sink(node, table, f"{name} (late rows)"))
    return roots


def _late_sink(node: n.WindowAggregate, table: n.TableRef, name: str) -> n.Sink:
    rows = node.input.schema
    side = n.SideOutput(input=node, tag=LATE_TAG, schema=rows)
    expressions: list[Expr] = []
    for field in table.schema.fields:
        if field.name in rows.names:
            index = rows.index(field.name)
            value: Expr = InputRef(index, rows.types[index])
            if value.type.with_nullable(True) != field.type.with_nullable(True):
                value = make_call("CAST", [value], type=field.type.with_nullable(value.type.nullable))
        else:
            value = Literal(None, field.type.with_nullable(True))
        expressions.append(value)
    project = n.Project(input=side, expressions=tuple(expressions), schema=t_schema(table, expressions))
    return n.Sink(input=project, table=table, name=name, schema=table.schema)


def t_schema(table: n.TableRef, expressions: Sequence[Expr]) -> n.Schema:
    """The table's columns with the types of these expressions."""
    from penstock.types.logical import Field, Schema

    return Schema(tuple(Field(f.name, e.type) for f, e in zip(table.schema.fields, expressions, strict=True)))
