"""What rows and columns mean, in words that do not depend on where the planner put things.

``Lineage.of(node)`` says of a relation which base tables it reads, which rows of them it has, and
where each column comes from. Aliases, views, the order of columns, the place of a filter and the
order of inner joins make no difference. Two relations with equal words have equal rows; rows that
are equal for another reason may have different words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import AggregateCall, Call, Expr, FieldAccess, InputRef, Literal, PythonCall
from penstock.plan import nodes as n
from penstock.plan.rewriting import conjuncts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.jobgraph.specs import SortKey, WindowSpec
    from penstock.types.logical import LogicalType

#: Longer words are cut and end in a hash of the whole.
MOST_CHARACTERS = 240
_KEPT_CHARACTERS = 180
_COMMUTATIVE = frozenset(("=", "<>", "AND", "OR", "+", "*"))
_MIRRORED = {">": "<", ">=": "<="}


def bounded(words: str) -> str:
    """At most ``MOST_CHARACTERS``; different words stay different."""
    if len(words) <= MOST_CHARACTERS:
        return words
    return f"{words[:_KEPT_CHARACTERS]}…#{hashlib.sha256(words.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Relation:
    """``tables``: base tables below. ``atoms``: what is multiplied, ``conditions``: which of its
    rows are left. ``columns``: where each column comes from."""

    tables: frozenset[str]
    atoms: tuple[str, ...]
    conditions: frozenset[str]
    columns: tuple[str, ...]

    @property
    def rows(self) -> str:
        """Which rows these are."""
        words = " × ".join(sorted(self.atoms))
        if self.conditions:
            words += " where " + " and ".join(sorted(self.conditions))
        return bounded(words)


class Lineage:
    """Of the nodes of one plan, each computed once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[n.Node, Relation]] = {}

    def of(self, node: n.Node) -> Relation:
        found = self._known.get(id(node))
        if found is None:
            found = (node, self._of(node))
            self._known[id(node)] = found
        return found[1]

    def _of(self, node: n.Node) -> Relation:
        match node:
            case n.Scan():
                return _scan(node)
            case n.Values():
                data = hashlib.sha256(node.data.encode()).hexdigest()[:16]
                atom = f"VALUES#{data}"
                columns = tuple(f"{atom}.{name}" for name in node.schema.names)
                return Relation(frozenset(("VALUES",)), (atom,), frozenset(), columns)
            case n.Join():
                return self._join(node)
            case n.TemporalJoin():
                return self._temporal(node)
            case n.Union_():
                return self._union(node)
            case n.SetOperation():
                left, right = self.of(node.left), self.of(node.right)
                kind = f"{node.kind} {'all' if node.all else 'distinct'}"
                atom = f"{kind}({_typed_row(left, node.left)}; {_typed_row(right, node.right)})"
                return _opaque(left.tables | right.tables, atom, left.columns)
            case n.Transform():
                return self._transform(node)
        below = self.of(n.inputs_of(node)[0])
        columns = below.columns
        match node:
            case n.Filter():
                conditions = frozenset(expression(c, columns) for c in conjuncts(node.condition))
                return Relation(below.tables, below.atoms, below.conditions | conditions, columns)
            case n.Project():
                made = tuple(bounded(expression(e, columns)) for e in node.expressions)
                return Relation(below.tables, below.atoms, below.conditions, made)
            case n.AssignWatermarks() | n.Sink():
                return below
            case n.LocalTime():
                made = (*columns, f"LOCAL_TIME({columns[node.time]}, {node.zone})")
                return Relation(below.tables, below.atoms, below.conditions, made)
            case n.AsyncCalc():
                made = (*columns, *(bounded(expression(c, columns)) for c in node.calls))
                return Relation(below.tables, below.atoms, below.conditions, made)
            case n.WindowTable():
                window = window_words(node.window, columns, [columns[k] for k in node.keys])
                made = (*columns, *(f"{window}.{x}" for x in ("start", "end", "time")))
                return _opaque(below.tables, f"{window} of {below.rows}", made)
            case n.Expand():
                lists = [[expression(e, columns) for e in p] for p in node.projections]
                atom = bounded(f"sets({'; '.join(', '.join(x) for x in lists)}) of {below.rows}")
                made = tuple(
                    bounded(f"set({', '.join(x[i] for x in lists)})") for i in range(len(node.schema))
                )
                return _opaque(below.tables, atom, made)
            case n.Aggregate():
                keys = tuple(columns[k] for k in node.keys)
                atom = bounded(f"groups({', '.join(sorted(keys))}) of {below.rows}")
                made = (*keys, *(bounded(f"{call_words(c, columns)} in {atom}") for c in node.aggregates))
                return _opaque(below.tables, atom, made)
            case n.WindowAggregate():
                return _window_aggregate(node, below)
            case n.Sort():
                if node.limit is None and not node.offset:
                    return below
                words = f"{order_words(node.order, columns)} limit {node.limit} offset {node.offset}"
                return _opaque(below.tables, f"sorted({words}) of {below.rows}", columns)
            case n.Limit():
                words = f"any({node.limit} offset {node.offset}) of {below.rows}"
                return _opaque(below.tables, words, columns)
            case n.TopN():
                atom = bounded(f"{top_words(node, columns)} of {below.rows}")
                rank = (f"{node.rank} in {atom}",) if node.rank_column else ()
                return _opaque(below.tables, atom, (*columns, *rank))
            case n.Over():
                frame = over_words(node, columns)
                made = (
                    *columns,
                    *(
                        bounded(f"{call_words(c, columns)} over {frame} in {below.rows}")
                        for c in node.aggregates
                    ),
                )
                return Relation(below.tables, below.atoms, below.conditions, made)
            case n.Correlate():
                args = ", ".join(expression(a, columns) for a in node.args)
                call = bounded(f"{node.kind} {node.function}({args})")
                new = len(node.schema) - len(columns)
                atom = f"{call} for each of {below.rows}"
                return _opaque(below.tables, atom, (*columns, *(f"{call}.{i}" for i in range(new))))
            case n.SideOutput():
                atom = bounded(f"output {node.tag} of {below.rows}")
                return _opaque(below.tables, atom, tuple(f"{atom}.{c}" for c in node.schema.names))
        raise AssertionError(node)

    def _join(self, node: n.Join) -> Relation:
        left, right = self.of(node.left), self.of(node.right)
        tables = left.tables | right.tables
        if set(left.atoms) & set(right.atoms):
            left, right = _marked(left, "left"), _marked(right, "right")
        conditions = join_conditions(node, left, right)
        if node.kind == "inner":
            return Relation(
                tables,
                (*left.atoms, *right.atoms),
                left.conditions | right.conditions | conditions,
                (*left.columns, *right.columns),
            )
        on = " and ".join(sorted(conditions))
        atom = bounded(f"{node.kind}({left.rows}; {right.rows}; {on})")
        if node.kind in ("semi", "anti"):
            return _opaque(tables, atom, left.columns)
        return _opaque(
            tables,
            atom,
            (
                *(left.columns if node.kind == "left" else _optional(left.columns)),
                *(right.columns if node.kind == "right" else _optional(right.columns)),
            ),
        )

    def _temporal(self, node: n.TemporalJoin) -> Relation:
        left, right = _marked(self.of(node.left), "left"), _marked(self.of(node.right), "right")
        pairs = zip(node.left_keys, node.right_keys, strict=True)
        words = [f"{left.columns[a]} = {right.columns[b]}" for a, b in pairs]
        words += [expression(c, (*left.columns, *right.columns)) for c in conjuncts(node.condition)]
        time = "now" if node.left_time is None else left.columns[node.left_time]
        atom = bounded(f"{node.kind}({left.rows}; {right.rows} as of {time}; {' and '.join(sorted(words))})")
        columns = (*left.columns, *_optional(right.columns))[: len(node.schema)]
        return _opaque(left.tables | right.tables, atom, columns)

    def _union(self, node: n.Union_) -> Relation:
        parts = [self.of(i) for i in node.inputs]
        tables = frozenset().union(*(p.tables for p in parts))
        rows = sorted(_row_words(p) for p in parts)
        atom = bounded(f"union({'; '.join(rows)})")
        columns = tuple(
            bounded(f"union({'; '.join(sorted(p.columns[i] for p in parts))})")
            for i in range(len(node.schema))
        )
        return _opaque(tables, atom, columns)

    def _transform(self, node: n.Transform) -> Relation:
        parts = [self.of(i) for i in node.inputs]
        tables = frozenset().union(*(p.tables for p in parts)) if parts else frozenset((node.name,))
        atom = bounded(f"{node.name}({'; '.join(p.rows for p in parts)})")
        return _opaque(tables, atom, tuple(f"{node.name}.{c}" for c in node.schema.names))


# -- relations -----------------------------------------------------------------------------


def _opaque(tables: frozenset[str], atom: str, columns: tuple[str, ...]) -> Relation:
    return Relation(tables, (bounded(atom),), frozenset(), columns)


def _scan(node: n.Scan) -> Relation:
    table = node.table
    inputs = [f"{table.name}.{name}" for name in table.physical.names]
    inputs += [f"{table.name}.METADATA {m.key}" for m in table.metadata]
    # A source that applies ``column = constant`` itself has computed columns with the constant in them.
    computed = table.declared if table.declared is not None else table.computed
    everything = inputs if computed is None else [bounded(expression(e, inputs)) for e in computed]
    wanted = node.projection if node.projection is not None else range(len(everything))
    physical = table.physical
    conditions = frozenset(
        expression(
            Call(
                "=",
                (InputRef(i, physical.types[i]), Literal(value, physical.types[i])),
                physical.types[i],
            ),
            inputs,
        )
        for i, value in ((physical.names.index(name), value) for name, value in node.pushed.items())
    )
    return Relation(frozenset((table.name,)), (table.name,), conditions, tuple(everything[i] for i in wanted))


def _window_aggregate(node: n.WindowAggregate, below: Relation) -> Relation:
    columns = below.columns
    keys = tuple(columns[k] for k in node.keys)
    window = window_of(node, columns)
    atom = bounded(f"groups({', '.join(sorted(keys))} per {window}) of {below.rows}")
    made = (
        *keys,
        *(bounded(f"{call_words(c, columns)} in {atom}") for c in node.aggregates),
        *(f"{window}.{x}" for x in node.window_columns),
    )
    return _opaque(below.tables, atom, made)


def _marked(relation: Relation, side: str) -> Relation:
    """Told apart from the other side of a join, which has the same rows in it."""
    return Relation(
        relation.tables,
        tuple(bounded(f"{side} {a}") for a in relation.atoms),
        frozenset(bounded(f"{side} {c}") for c in relation.conditions),
        tuple(bounded(f"{side} {c}") for c in relation.columns),
    )


def _optional(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{c}?" for c in columns)


def _row_words(relation: Relation) -> str:
    return bounded(f"({', '.join(relation.columns)}) of {relation.rows}")


def _typed_row(relation: Relation, node: n.Node) -> str:
    return bounded(f"({', '.join(typed(relation.columns, node.schema.types))}) of {relation.rows}")


def typed(columns: Sequence[str], types: Sequence[LogicalType]) -> tuple[str, ...]:
    """Each with its type, NULL or not: a state's layout depends on both."""
    return tuple(f"{c} {x}" for c, x in zip(columns, types, strict=True))


# -- words ---------------------------------------------------------------------------------


def expression(expr: Expr, columns: Sequence[str]) -> str:
    """Over columns with these origins."""
    match expr:
        case InputRef():
            return columns[expr.index]
        case Literal():
            return f"{expr.value!r}:{expr.type.with_nullable(True)}"
        case FieldAccess():
            return f"{expression(expr.arg, columns)}.{expr.index}"
        case PythonCall():
            return f"{expr.function}({', '.join(expression(a, columns) for a in expr.args)})"
        case Call():
            args = [expression(a, columns) for a in expr.args]
            function = expr.function
            if function in _MIRRORED:
                function, args = _MIRRORED[function], args[::-1]
            if function in _COMMUTATIVE:
                args.sort()
            type_ = f" {expr.type.with_nullable(True)}" if function in ("CAST", "TRY_CAST") else ""
            return bounded(f"{function}({', '.join(args)}{type_})")
    raise AssertionError(expr)


def call_words(call: AggregateCall, columns: Sequence[str]) -> str:
    """``SUM(DISTINCT orders.v BIGINT)``."""
    args = ", ".join(columns[a] for a in call.args) or "*"
    words = f"{call.python or call.function}({'DISTINCT ' if call.distinct else ''}{args})"
    words += f" filter {columns[call.filter]}" if call.filter is not None else ""
    words += " ignore nulls" if call.ignore_nulls else ""
    words += f" {list(call.constants)!r}" if call.constants else ""
    return bounded(f"{words} {call.type}")


def window_words(window: WindowSpec, columns: Sequence[str], keys: Iterable[str] = ()) -> str:
    """``tumble(orders.ts, size 10000 ms)``."""
    time = "processing time" if window.time is None else "event time"
    if window.time is not None and window.time >= 0:
        time = columns[window.time]
    sizes = {
        "size": window.size_us,
        "slide": window.slide_us,
        "offset": window.offset_us,
        "gap": window.gap_us,
    }
    words = [time, *(f"{name} {us / 1000:g} ms" for name, us in sizes.items() if us)]
    words += [f"by {key}" for key in keys]
    return bounded(f"{window.kind}({', '.join(words)})")


def window_of(node: n.WindowAggregate, columns: Sequence[str]) -> str:
    """Of an aggregation: its own window, or the columns of one that rows carry."""
    own = msgspec.structs.replace(node.window, time=None) if node.windowed_input else node.window
    words = window_words(own, columns)
    if node.windowed_input:
        start, end = node.windowed_input
        words = f"{words} from {columns[start]} to {columns[end]}"
    if node.allowed_lateness_us:
        words = f"{words}, {node.allowed_lateness_us / 1000:g} ms late"
    return bounded(words)


def order_words(order: Sequence[SortKey], columns: Sequence[str]) -> str:
    return ", ".join(
        f"{columns[k.index]}{' desc' if k.descending else ''}{'' if k.nulls_first else ' nulls last'}"
        for k in order
    )


def top_words(node: n.TopN, columns: Sequence[str]) -> str:
    window = f" per {columns[node.window[0]]}" if node.window else ""
    partition = ", ".join(sorted(columns[p] for p in node.partition))
    return (
        f"top({node.rank} {node.first} to {node.last} by {partition}{window} "
        f"order {order_words(node.order, columns)})"
    )


def over_words(node: n.Over, columns: Sequence[str]) -> str:
    partition = ", ".join(sorted(columns[p] for p in node.partition))
    return bounded(
        f"({partition} order {order_words(node.order, columns)} {node.frame} {node.preceding} {node.following})"
    )


def join_conditions(node: n.Join, left: Relation, right: Relation) -> frozenset[str]:
    """All that a pair of rows must fulfil."""
    both = (*left.columns, *right.columns)
    safe = node.null_safe or (False,) * len(node.left_keys)
    words = [
        bounded(f"{' <=> ' if null_safe else ' = '}".join(sorted((left.columns[a], right.columns[b]))))
        for a, b, null_safe in zip(node.left_keys, node.right_keys, safe, strict=True)
    ]
    words += [expression(c, both) for c in conjuncts(node.condition)]
    if node.interval is not None:
        lt, rt, low, high = node.interval
        words.append(
            bounded(
                f"{right.columns[rt]} between {low / 1000:g} and {high / 1000:g} ms of {left.columns[lt]}"
            )
        )
    if node.window is not None:
        (ls, _), (rs, _) = node.window
        words.append(bounded(" = ".join(sorted((left.columns[ls], right.columns[rs])))))
    return frozenset(words)
