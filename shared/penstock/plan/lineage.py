"""The meaning of rows and columns, in words that do not depend on the shape of the plan.

``Lineage.of(node)`` says which base tables a relation reads, which of their rows it has, and where each
column comes from. Aliases, views, the order of columns, the place of a filter and the order of inner joins
make no difference. Relations with equal words have equal rows; relations with equal rows may have different
words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.functions.expr import AggregateCall, Call, Expr, FieldAccess, InputRef, Literal, PythonCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.jobgraph.specs import SortKey, WindowSpec
    from penstock.plan.node import Node
    from penstock.types.logical import LogicalType

#: A longer text is cut; it then ends in a hash of the whole text.
MOST_CHARACTERS = 240
_KEPT_CHARACTERS = 180
#: Parts of a meaning that say which rows are stored. The other parts say how rows are stored.
UNSTORED = frozenset(("input", "left rows", "right rows", "condition", "reads", "writes"))
#: Part → words, and state → what each of its columns holds.
Meaning = tuple[dict[str, str], dict[str, tuple[str, ...]]]
_COMMUTATIVE = frozenset(("=", "<>", "AND", "OR", "+", "*"))
_MIRRORED = {">": "<", ">=": "<="}


def bounded(words: str) -> str:
    """The words, cut to ``MOST_CHARACTERS``. Different texts stay different."""
    if len(words) <= MOST_CHARACTERS:
        return words
    return f"{words[:_KEPT_CHARACTERS]}…#{hashlib.sha256(words.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Relation:
    """The origin of some rows. ``tables``: base tables below. ``atoms``: the relations whose product the rows
    are taken from; ``conditions``: what every row taken meets. ``columns``: where each column comes from."""

    tables: frozenset[str]
    atoms: tuple[str, ...]
    conditions: frozenset[str]
    columns: tuple[str, ...]

    @property
    def rows(self) -> str:
        """Describes, in words, which rows the relation has."""
        words = " × ".join(sorted(self.atoms))
        if self.conditions:
            words += " where " + " and ".join(sorted(self.conditions))
        return bounded(words)


class Lineage:
    """The relations of the nodes of one plan. Each is computed once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, Relation]] = {}

    def of(self, node: Node) -> Relation:
        """The relation of ``node``."""
        found = self._known.get(id(node))
        if found is None:
            found = (node, node.relation(self))
            self._known[id(node)] = found
        return found[1]


# -- relations -----------------------------------------------------------------------------


def opaque(tables: frozenset[str], atom: str, columns: tuple[str, ...]) -> Relation:
    """Rows about whose origin nothing more is known.

    Args:
        tables: Base tables that the rows come from.
        atom: What the rows are, in words.
        columns: Where each column comes from, in words.
    """
    return Relation(tables, (bounded(atom),), frozenset(), columns)


def marked(relation: Relation, side: str) -> Relation:
    """The relation as one side of a join whose other side has the same rows."""
    return Relation(
        relation.tables,
        tuple(bounded(f"{side} {a}") for a in relation.atoms),
        frozenset(bounded(f"{side} {c}") for c in relation.conditions),
        tuple(bounded(f"{side} {c}") for c in relation.columns),
    )


def optional(columns: Sequence[str]) -> tuple[str, ...]:
    """The words of columns that an outer join may fill with NULL: each gets a question mark."""
    return tuple(f"{c}?" for c in columns)


def row_words(relation: Relation) -> str:
    """The relation's columns and rows, in words."""
    return bounded(f"({', '.join(relation.columns)}) of {relation.rows}")


def typed_row(relation: Relation, types: Sequence[LogicalType]) -> str:
    """The relation's columns with their types, and its rows, in words."""
    return bounded(f"({', '.join(typed(relation.columns, types))}) of {relation.rows}")


def typed(columns: Sequence[str], types: Sequence[LogicalType]) -> tuple[str, ...]:
    """Each of ``columns`` with its type of ``types``, NULL or not, because the layout of a state depends on
    both."""
    return tuple(f"{c} {x}" for c, x in zip(columns, types, strict=True))


# -- words ---------------------------------------------------------------------------------


def expression(expr: Expr, columns: Sequence[str]) -> str:
    """An expression over columns with these origins, in words."""
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
    """An aggregate call in words, such as ``SUM(DISTINCT orders.v BIGINT)``."""
    args = ", ".join(columns[a] for a in call.args) or "*"
    words = f"{call.python or call.function}({'DISTINCT ' if call.distinct else ''}{args})"
    words += f" filter {columns[call.filter]}" if call.filter is not None else ""
    words += " ignore nulls" if call.ignore_nulls else ""
    words += f" {list(call.constants)!r}" if call.constants else ""
    return bounded(f"{words} {call.type}")


def window_words(window: WindowSpec, columns: Sequence[str], keys: Iterable[str] = ()) -> str:
    """A window in words, such as ``tumble(orders.ts, size 10000 ms)``."""
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


def order_words(order: Sequence[SortKey], columns: Sequence[str]) -> str:
    """The sort keys in words."""
    return ", ".join(
        f"{columns[k.index]}{' desc' if k.descending else ''}{'' if k.nulls_first else ' nulls last'}"
        for k in order
    )


def stored_rows(below: Relation, row: Sequence[str]) -> dict[str, str]:
    """The meaning of a state that holds rows of an input."""
    return {"input": below.rows, "columns": bounded(", ".join(row))}


def listed(row: Sequence[str], columns: Sequence[int]) -> str:
    """The words of ``row`` at the positions ``columns``."""
    return bounded(", ".join(row[c] for c in columns))


def calls_words(calls: Sequence[AggregateCall], columns: Sequence[str]) -> str:
    """The aggregate calls in words, of bounded length."""
    return bounded(", ".join(call_words(c, columns) for c in calls))


def table_set(tables: frozenset[str]) -> str:
    """A set of tables in words, such as ``{orders, people}``."""
    return "{" + ", ".join(sorted(tables)) + "}"


def updates_words(retracts: bool) -> str:
    """Says in words whether the input updates rows."""
    return "rows change" if retracts else "rows are only added"


def befores_words(emit_before: bool) -> str:
    """Says in words whether the output has rows of kind −U."""
    return "sends what it replaces" if emit_before else "sends new rows only"


def values_words(data: str) -> str:
    """Describes rows that the plan itself holds."""
    return f"VALUES#{hashlib.sha256(data.encode()).hexdigest()[:16]}"
