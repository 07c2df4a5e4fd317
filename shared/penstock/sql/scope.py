"""The relations that a clause may name, and the names of their columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.functions.expr import InputRef
from penstock.plan import nodes as n
from penstock.sql.errors import did_you_mean
from penstock.types.logical import Field, LogicalType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot import exp

    from penstock.sql.errors import Source


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """One visible column: its name, the alias of its table, its index in the node."""

    name: str
    table: str | None
    index: int
    type: LogicalType
    #: The binder added the column: a name finds it, but ``*`` does not select it.
    hidden: bool = False
    #: Only ``table.name`` finds the column.
    qualified: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A plan node and the names of its columns."""

    node: n.Node
    columns: tuple[ScopeColumn, ...]

    @classmethod
    def of(cls, node: n.Node, alias: str | None = None) -> Relation:
        """The relation of a plan node's columns, qualified by ``alias``."""
        columns = tuple(ScopeColumn(f.name, alias, i, f.type) for i, f in enumerate(node.schema.fields))
        return cls(node, columns)

    def aliased(self, alias: str | None, names: Sequence[str] = ()) -> Relation:
        """The visible columns under another table name and, if given, other column names."""
        renamed = [
            replace(c, table=alias, name=names[i] if i < len(names) else c.name)
            for i, c in enumerate(c for c in self.columns if not c.hidden)
        ]
        return Relation(self.node, tuple(renamed))

    def over(self, node: n.Node) -> Relation:
        """The same columns over another node with the same leading layout."""
        return Relation(node, self.columns)

    @property
    def visible(self) -> list[ScopeColumn]:
        """The columns that ``*`` selects."""
        return [c for c in self.columns if not c.hidden]

    def ref(self, column: ScopeColumn) -> InputRef:
        """An expression that reads the column."""
        return InputRef(column.index, column.type)

    def find(
        self, parts: Sequence[str], node: exp.Expression, source: Source
    ) -> tuple[ScopeColumn, int] | None:
        """The column that the leading ``parts`` name, and how many of the parts; None if unknown. Raises
        SqlError if two columns match."""
        if len(parts) > 1:
            found = [c for c in self.columns if c.table == parts[0] and c.name == parts[1]]
            if found:
                return self._single(found, parts[:2], node, source), 2
        found = [c for c in self.columns if c.name == parts[0] and not c.qualified]
        if found:
            return self._single(found, parts[:1], node, source), 1
        return None

    def resolve(self, parts: Sequence[str], node: exp.Expression, source: Source) -> tuple[ScopeColumn, int]:
        """As ``find``, but raises SqlError, with the nearest known name, for an unknown name."""
        found = self.find(parts, node, source)
        if found:
            return found
        tables = {c.table for c in self.columns if c.table}
        known = [c.name for c in self.columns]
        if len(parts) > 1 and parts[0] in tables:
            known = [c.name for c in self.columns if c.table == parts[0]]
            wanted, missing = ".".join(parts[:2]), parts[1]
        else:
            wanted, missing = ".".join(parts), parts[0]
            known += sorted(tables) if len(parts) > 1 else []
        listed = ", ".join(dict.fromkeys(known)) or "(there are no columns here)"
        raise source.error(
            f"unknown column '{wanted}'",
            node,
            expected=f"one of {listed}",
            got=repr(wanted),
            remedy=did_you_mean(missing, known),
        )

    def _single(
        self, found: list[ScopeColumn], parts: Sequence[str], node: exp.Expression, source: Source
    ) -> ScopeColumn:
        if len({c.index for c in found}) == 1:
            return found[0]
        tables = [f"{c.table}.{c.name}" for c in found if c.table]
        remedy = "qualify it: " + " or ".join(tables) if tables else "give the columns different aliases"
        twice = next((c.table for c in found if c.table and tables.count(f"{c.table}.{c.name}") > 1), None)
        if twice is not None:
            remedy = f"give one of the tables another alias: '{twice}' names two of them, or one with two columns of that name"
        raise source.error(
            f"column '{'.'.join(parts)}' is ambiguous",
            node,
            expected="a name that fits one column",
            got=" and ".join(tables) or f"{len(found)} columns of that name",
            remedy=remedy,
        )


@dataclass(slots=True)
class Names:
    """Output names made unique as Flink does: ``a``, ``a0``, ``a1`` …"""

    taken: set[str] = field(default_factory=set)

    def unique(self, name: str) -> str:
        """``name``, or ``name`` with the first free number appended. The
        result counts as taken from now on."""
        candidate, i = name, 0
        while candidate in self.taken:
            candidate = f"{name}{i}"
            i += 1
        self.taken.add(candidate)
        return candidate


def unique_schema(fields: Iterable[tuple[str, LogicalType]]) -> Schema:
    """A schema of the fields in which repeated names get numbers."""
    names = Names()
    return Schema(tuple(Field(names.unique(name), type_) for name, type_ in fields))


def joined_schema(left: Schema, right: Schema, *, left_null: bool, right_null: bool) -> Schema:
    """Columns of both sides; the padded side of an outer join becomes nullable."""
    pairs = [(f.name, f.type.with_nullable(True) if left_null else f.type) for f in left.fields]
    pairs += [(f.name, f.type.with_nullable(True) if right_null else f.type) for f in right.fields]
    return unique_schema(pairs)


def joined(left: Relation, right: Relation, node: n.Node) -> Relation:
    """The scope of a join node: both sides' columns with their table names."""
    width = len(left.node.schema)
    types = node.schema.types
    columns = [replace(c, type=types[c.index]) for c in left.columns]
    columns += [replace(c, index=c.index + width, type=types[c.index + width]) for c in right.columns]
    return Relation(node, tuple(columns))
