"""Hints behind SELECT: how long joins and groups keep their state, and how Spark is to run a join."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from sqlglot import exp

from penstock.config import parse_duration_ms
from penstock.errors import PenstockError
from penstock.plan import nodes as n
from penstock.sql.errors import did_you_mean
from penstock.sql.lookup_hints import LOOKUP, lookup_hint

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder
    from penstock.sql.scope import Relation

Strategy = Literal["broadcast", "shuffle_hash", "merge"]

#: Hint of Flink → Spark's name of the strategy; None: Spark has no such hint, and chooses by itself.
STRATEGIES: dict[str, Strategy | None] = {
    "BROADCAST": "broadcast",
    "SHUFFLE_HASH": "shuffle_hash",
    "SHUFFLE_MERGE": "merge",
    "NEST_LOOP": None,
}
STATE_TTL = "STATE_TTL"


@dataclass(frozen=True, slots=True)
class SelectHints:
    """What the hints of one SELECT say, by the name or alias of a table in its FROM."""

    #: How long state of the table's rows is kept, ms; 0: for ever.
    lifetimes: dict[str, int] = field(default_factory=dict)
    strategies: dict[str, Strategy | None] = field(default_factory=dict)
    #: Options that the hint LOOKUP stands for, by table.
    lookups: dict[str, dict[str, str]] = field(default_factory=dict)
    #: The tables whose lifetime some operator has, and with LOOKUP before their name those of lookup joins.
    kept: set[str] = field(default_factory=set, compare=False)

    def hinted(self, join: n.Join, left: Relation, right: Relation) -> n.Join:
        """The join of two relations with what the hints say of the tables that are a side of it."""
        if not (self.lifetimes or self.strategies):
            return join
        names = [_only_table(side) for side in (left, right)]
        first, second = (None if name is None else self.lifetimes.get(name) for name in names)
        asked = [(i, self.strategies[name]) for i, name in enumerate(names) if name in self.strategies]
        self.kept.update(name for name in names if name in self.lifetimes)
        strategy: tuple[Strategy, Literal["left", "right"]] | None = None
        for side, wanted in asked:
            if wanted is not None:
                strategy = (wanted, "right" if side else "left")
        return replace(join, lifetimes=(first, second), strategy=strategy)

    def grouped(self, node: n.Node, relation: Relation) -> n.Node:
        """The grouping ``node`` over ``relation`` with what the hints say of the relation, if it is one table."""
        name = _only_table(relation)
        if name not in self.lifetimes or not isinstance(node, n.Aggregate):
            return node
        self.kept.add(str(name))
        return replace(node, lifetime=self.lifetimes[name])


NO_HINTS = SelectHints()


def _only_table(relation: Relation) -> str | None:
    tables = {c.table for c in relation.columns}
    return tables.pop() if len(tables) == 1 else None


def select_hints(ctx: QueryBinder, select: exp.Select) -> SelectHints:
    """The hints behind the word SELECT. Raises SqlError for an unknown hint or a value that it cannot have."""
    clause = select.args.get("hint")
    if clause is None:
        return NO_HINTS
    lifetimes: dict[str, int] = {}
    strategies: dict[str, Strategy | None] = {}
    lookups: dict[str, dict[str, str]] = {}
    for hint in clause.expressions:
        name = hint.this.upper()
        if name == STATE_TTL:
            for table, value in hint.meta["options"].items():
                lifetimes[table] = _duration(ctx, hint, table, value)
        elif name == LOOKUP:
            table, options = lookup_hint(ctx, hint)
            lookups[table] = options
        elif name in STRATEGIES:
            strategies.update(dict.fromkeys(hint.meta["names"], STRATEGIES[name]))
        else:
            known = [STATE_TTL, LOOKUP, *STRATEGIES]
            raise ctx.source.unsupported(
                f"the hint {name}",
                hint,
                expected="OPTIONS('key' = 'value') behind a table's name, or one of "
                + ", ".join(known)
                + " behind SELECT",
                remedy="write it directly behind the table's name"
                if name == "OPTIONS"
                else did_you_mean(name, known) or "leave it out: the planner chooses",
            )
    return SelectHints(lifetimes, strategies, lookups)


def check_tables(ctx: QueryBinder, select: exp.Select, hints: SelectHints, relation: Relation) -> None:
    """Raise SqlError if a hint names a table that the FROM of its SELECT does not have."""
    known = sorted({c.table for c in relation.columns if c.table})
    for name in (*hints.lifetimes, *hints.strategies, *hints.lookups):
        if name not in known:
            raise ctx.source.error(
                f"a hint names the table '{name}', which is not in this FROM",
                select.args["hint"].expressions[0],
                expected="one of " + ", ".join(known),
                got=repr(name),
                remedy=did_you_mean(name, known) or "name a table by its alias, if it has one",
            )


def warn_without_effect(ctx: QueryBinder, select: exp.Select, hints: SelectHints) -> None:
    """Warns of hints that no operator of the SELECT has taken: STATE_TTL and LOOKUP."""
    told = [
        (STATE_TTL, name, "it is neither a side of a join nor grouped alone")
        for name in hints.lifetimes
        if name not in hints.kept
    ]
    told += [
        (LOOKUP, name, "it is not looked up")
        for name in hints.lookups
        if f"{LOOKUP} {name}" not in hints.kept
    ]
    for hint, name, why in told:
        place = ctx.source.where(select.args["hint"].expressions[0])
        ctx.catalog.warnings.append(f"{hint} of '{name}' has no effect ({place}): {why}")


def _duration(ctx: QueryBinder, hint: exp.Expression, table: str, value: str) -> int:
    try:
        return parse_duration_ms(value)
    except (PenstockError, ValueError) as err:
        raise ctx.source.error(
            f"STATE_TTL of '{table}' is no duration", hint, expected="e.g. '12 h' or '3 d'", got=repr(value)
        ) from err
