"""EXPLAIN: logical plan, physical plan, job graph, modes, state and guarantees as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import AggregateCall, Call, Expr, FieldAccess, InputRef, Literal, PythonCall
from penstock.jobgraph.graph import Broadcast, Forward, Global, Hash, Partitioning, Rebalance, Rescale
from penstock.plan import nodes as n
from penstock.plan.chaining import partitioning_of
from penstock.plan.notes import notes
from penstock.plan.operators import PlannedOperator, all_inputs
from penstock.types import logical as t
from penstock.types.durations import duration_text, shifted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph.graph import JobEdge, JobVertex
    from penstock.jobgraph.specs import SortKey, WindowSpec
    from penstock.plan.changelog import ChangelogModes
    from penstock.plan.properties import Analysis
    from penstock.types.logical import Schema

_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "LIKE", "IS DISTINCT FROM",
          "IS NOT DISTINCT FROM"}  # fmt: skip


def explain(
    plan: n.LogicalPlan,
    optimized: n.LogicalPlan,
    analysis: Analysis,
    modes: ChangelogModes,
    operators: Sequence[PlannedOperator],
    vertices: Sequence[JobVertex],
    edges: Sequence[JobEdge],
) -> str:
    final = " (bounded: final rows once)" if analysis.final else ""
    parts = [
        "== Logical Plan ==",
        logical_text(plan),
        "== Optimized Logical Plan ==",
        logical_text(optimized),
        f"== Physical Plan =={final}",
        physical_text(operators),
        *_section("== Notes ==", notes(optimized, operators)),
        "== Job Graph ==",
        graph_text(vertices, edges),
    ]
    return "\n".join(parts)


def _section(title: str, text: str) -> list[str]:
    return [title, text] if text else []


# -- logical ----------------------------------------------------------------------------------------


def logical_text(plan: n.LogicalPlan) -> str:
    """A tree a sink; a sub-plan that occurs again is referred to by its number."""
    from penstock.plan.rewriting import Interner, walk

    interner = Interner()
    sinks = [interner.intern(s) for s in plan.sinks]
    uses: dict[int, int] = {}
    for node in walk(sinks):
        for child in n.inputs_of(node):
            uses[id(child)] = uses.get(id(child), 0) + 1
    numbers: dict[int, int] = {}
    lines: list[str] = []

    def show(node: n.Node, depth: int) -> None:
        shared = uses.get(id(node), 0) > 1 and bool(n.inputs_of(node))
        prefix = "  " * depth
        if shared and id(node) in numbers:
            lines.append(f"{prefix}Reused(#{numbers[id(node)]})")
            return
        label = ""
        if shared:
            numbers[id(node)] = len(numbers) + 1
            label = f"#{numbers[id(node)]} "
        lines.append(f"{prefix}{label}{describe(node)}")
        for child in n.inputs_of(node):
            show(child, depth + 1)

    for sink in sinks:
        show(sink, 0)
    return "\n".join(lines) + "\n"


def describe(node: n.Node) -> str:
    match node:
        case n.Scan():
            what = [f"columns=[{', '.join(node.schema.names)}]"]
            if node.pushed:
                what.append(
                    "pushed=[" + ", ".join(f"{k} = {v}" for k, v in sorted(node.pushed.items())) + "]"
                )
            return f"Scan(table={node.table.name}, {', '.join(what)})"
        case n.Values():
            return f"Values({', '.join(node.schema.names)})"
        case n.Filter():
            return f"Filter({text(node.condition, node.input.schema)})"
        case n.Project():
            return f"Project({_projections(node.expressions, node.schema, node.input.schema)})"
        case n.AssignWatermarks():
            return "AssignWatermarks"
        case n.LocalTime():
            return f"LocalTime({node.input.schema.names[node.time]}, {node.zone})"
        case n.WindowTable():
            return f"WindowTable({window_text(node.window, node.input.schema)})"
        case n.Expand():
            lists = [f"({', '.join(text(e, node.input.schema) for e in one)})" for one in node.projections]
            return f"Expand({', '.join(lists)})"
        case n.Aggregate():
            names = node.input.schema
            return f"Aggregate({_keys(node.keys, names)}{_calls(node.aggregates, names)})"
        case n.WindowAggregate():
            names = node.input.schema
            window = window_text(node.window, None if node.windowed_input else names)
            given = ", windowed input" if node.windowed_input else ""
            late = f", late to '{node.late_tag}'" if node.late_tag else ""
            return f"WindowAggregate({window}{given}, {_keys(node.keys, names)}{_calls(node.aggregates, names)}{late})"
        case n.Join():
            return _join_text(node)
        case n.TemporalJoin():
            pairs = _pairs(node.left, node.right, node.left_keys, node.right_keys)
            how = "lookup" if node.lookup else f"as of {node.left.schema.names[node.left_time or 0]}"
            return f"TemporalJoin({node.kind}, {pairs}, {how})"
        case n.Union_():
            return "Union(all)"
        case n.SetOperation():
            return f"{node.kind.capitalize()}({'all' if node.all else 'distinct'})"
        case n.Sort():
            limit = f", limit={node.limit}" if node.limit is not None else ""
            offset = f", offset={node.offset}" if node.offset else ""
            return f"Sort({_order(node.order, node.input.schema)}{offset}{limit})"
        case n.Limit():
            return f"Limit({node.limit}" + (f", offset={node.offset})" if node.offset else ")")
        case n.TopN():
            names = node.input.schema
            rank = ", with rank" if node.rank_column else ""
            window = ", per window" if node.window else ""
            low = f"{node.first} <= " if node.first > 1 else ""
            return f"TopN({low}{node.rank} <= {node.last}, partition=[{_names(node.partition, names)}], {_order(node.order, names)}{rank}{window})"
        case n.Over():
            names = node.input.schema
            # The default frame, also of functions that have none, goes without saying.
            plain = (node.frame, node.preceding, node.following) == ("range", None, 0)
            frame = "" if plain else ", " + _frame_text(node)
            return f"Over(partition=[{_names(node.partition, names)}], {_order(node.order, names)}{frame}{_calls(node.aggregates, names)})"
        case n.Correlate():
            args = ", ".join(text(a, node.input.schema) for a in node.args)
            return f"Correlate({node.kind}, {node.function}({args}))"
        case n.AsyncCalc():
            return f"AsyncCalc({', '.join(text(c, node.input.schema) for c in node.calls)})"
        case n.Transform():
            return f"Transform({node.name})"
        case n.SideOutput():
            return f"SideOutput({node.tag})"
        case n.Sink():
            return f"Sink(table={node.name or node.table.name}, columns=[{', '.join(node.schema.names)}])"
    raise AssertionError(node)


def _frame_text(node: n.Over) -> str:
    def bound(value: int | None, side: str, other: str) -> str:
        if value is None:
            return f"unbounded {side}"
        return "current row" if not value else f"{abs(value)} {side if value > 0 else other}"

    start = bound(node.preceding, "preceding", "following")
    end = bound(node.following, "following", "preceding")
    return f"{node.frame} {start} to {end}"


def _join_text(node: n.Join) -> str:
    parts: list[str] = [node.kind]
    pairs = _pairs(node.left, node.right, node.left_keys, node.right_keys)
    if pairs:
        parts.append(pairs)
    if node.interval:
        a, b, low, high = node.interval
        left, right = node.left.schema.names[a], node.right.schema.names[b]
        parts.append(
            f"right.{right} BETWEEN {shifted(f'left.{left}', low)} AND {shifted(f'left.{left}', high)}"
        )
    if node.window:
        parts.append("equal windows")
    if node.condition is not None:
        both = t.Schema((*node.left.schema.fields, *node.right.schema.fields))
        parts.append(text(node.condition, both))
    kind = "IntervalJoin" if node.interval else "WindowJoin" if node.window else "Join"
    return f"{kind}({', '.join(parts)})"


def _pairs(left: n.Node, right: n.Node, left_keys: tuple[int, ...], right_keys: tuple[int, ...]) -> str:
    a, b = left.schema.names, right.schema.names
    return " AND ".join(f"left.{a[i]} = right.{b[j]}" for i, j in zip(left_keys, right_keys, strict=True))


def _names(columns: Sequence[int], schema: Schema) -> str:
    return ", ".join(schema.names[i] for i in columns)


def _keys(keys: tuple[int, ...], schema: Schema) -> str:
    return f"keys=[{_names(keys, schema)}]"


def _calls(calls: Sequence[AggregateCall], schema: Schema) -> str:
    if not calls:
        return ""
    return ", " + ", ".join(call_text(c, schema) for c in calls)


def call_text(call: AggregateCall, schema: Schema) -> str:
    args = _names(call.args, schema) if call.args else ("*" if call.function == "COUNT" else "")
    distinct = "DISTINCT " if call.distinct else ""
    constants = "".join(f", {c!r}" for c in call.constants)
    condition = f" FILTER {schema.names[call.filter]}" if call.filter is not None else ""
    return f"{call.function}({distinct}{args}{constants}){condition}"


def _order(order: Sequence[SortKey], schema: Schema) -> str:
    words = [
        schema.names[k.index]
        + (" DESC" if k.descending else " ASC")
        + ("" if k.nulls_first != k.descending else " NULLS FIRST" if k.nulls_first else " NULLS LAST")
        for k in order
    ]
    return f"order=[{', '.join(words)}]"


def window_text(window: WindowSpec, schema: Schema | None) -> str:
    time = (
        ""
        if schema is None
        else "processing time, "
        if window.time is None
        else f"{schema.names[window.time]}, "
    )
    match window.kind:
        case "session":
            return f"SESSION({time}gap {duration_text(window.gap_us)})"
        case "tumble":
            return f"TUMBLE({time}{duration_text(window.size_us)})"
    return f"{window.kind.upper()}({time}{duration_text(window.slide_us)}, {duration_text(window.size_us)})"


def _projections(exprs: Sequence[Expr], out: Schema, schema: Schema) -> str:
    parts = []
    for name, expr in zip(out.names, exprs, strict=True):
        shown = text(expr, schema)
        parts.append(shown if shown == name else f"{shown} AS {name}")
    return ", ".join(parts)


def text(expr: Expr, schema: Schema) -> str:
    """An expression with the names of its input's columns."""
    match expr:
        case InputRef(index=i):
            return schema.names[i] if i < len(schema) else f"${i}"
        case Literal(value=None):
            return "NULL"
        case Literal(value=value, type=type_):
            if isinstance(type_, t.STRINGS):
                return "'" + str(value).replace("'", "''") + "'"
            if isinstance(type_, t.DayTimeIntervalType):
                return f"INTERVAL {duration_text(value)}"
            if isinstance(type_, t.DecimalType) and isinstance(value, int):
                from decimal import Decimal

                return str(Decimal(value).scaleb(-type_.scale))
            return str(value).upper() if isinstance(value, bool) else str(value)
        case FieldAccess(arg=arg, index=i):
            names = [f.name for f in arg.type.fields]  # type: ignore[union-attr]
            return f"{text(arg, schema)}.{names[i]}"
        case Call(function="CAST" | "TRY_CAST", args=(arg,)):
            return f"{expr.function}({text(arg, schema)} AS {expr.type.sql()})"
        case Call(function=function, args=args) if function in _INFIX and len(args) > 1:
            return "(" + f" {function} ".join(text(a, schema) for a in args) + ")"
        case Call(function=function, args=(arg,)) if function.startswith("IS "):
            return f"{text(arg, schema)} {function}"
        case Call(function=function, args=args) | PythonCall(function=function, args=args):
            return f"{function}({', '.join(text(a, schema) for a in args)})"
    return str(expr)


# -- physical ---------------------------------------------------------------------------------------


def physical_text(operators: Sequence[PlannedOperator]) -> str:
    """One operator a line: number, inputs with their partitioning, mode, state, guarantee."""
    number = {id(op): i + 1 for i, op in enumerate(operators)}
    lines = []
    for op in operators:
        inputs = []
        for inp in all_inputs(op):
            how = partitioning_text(partitioning_of(op, inp), inp.source.output)
            tag = f" '{inp.tag}'" if inp.tag else ""
            inputs.append(f"{how} #{number[id(inp.source)]}{tag}")
        source = f" <- {', '.join(inputs)}" if inputs else ""
        facts = [f"p={op.parallelism}", op.mode]
        if op.keeps:
            facts.append(f"keeps {op.keeps}")
        if op.guarantee:
            facts.append(op.guarantee)
        lines.append(f"#{number[id(op)]} {op.name}{source}  [{'; '.join(facts)}]")
    return "\n".join(lines) + "\n"


def partitioning_text(partitioning: Partitioning, schema: Schema) -> str:
    match partitioning:
        case Forward():
            return "forward"
        case Hash(keys=keys):
            return f"hash({_names(keys, schema)})"
        case Rebalance():
            return "rebalance"
        case Rescale():
            return "rescale"
        case Broadcast():
            return "broadcast"
        case Global():
            return "global"


def graph_text(vertices: Sequence[JobVertex], edges: Sequence[JobEdge]) -> str:
    number = {v.id: i + 1 for i, v in enumerate(vertices)}
    lines = [f"v{number[v.id]} (parallelism {v.parallelism}): {v.name}" for v in vertices]
    for edge in edges:
        how = partitioning_text(edge.partitioning, edge.schema)
        tag = f" '{edge.tag}'" if edge.tag else ""
        lines.append(f"v{number[edge.source]}{tag} -> v{number[edge.target]} gate {edge.target_gate}: {how}")
    return "\n".join(lines) + "\n"
