"""The node of a join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from penstock.functions.expr import Expr, input_refs
from penstock.functions.expression_text import text
from penstock.jobgraph import specs as s
from penstock.jobgraph.loading import loaded
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, moved, referenced, renamed
from penstock.plan.node import Binary, Node
from penstock.plan.properties import Properties
from penstock.plan.rewriting import conjuncts
from penstock.plan.words import key_pairs
from penstock.types.durations import shifted
from penstock.types.logical import LogicalType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner
    from penstock.plan.pushdown import PushDown

replace = msgspec.structs.replace


class Pairing(Binary, frozen=True, kw_only=True):
    """Pairs of a left and a right row that have equal keys and meet ``condition``, which numbers the left
    columns before the right."""

    if TYPE_CHECKING:
        left_keys: tuple[int, ...]
        right_keys: tuple[int, ...]
        condition: Expr | None
        kind: Literal["inner", "left", "right", "full", "semi", "anti"]

    @property
    def one_sided(self) -> bool:
        """Whether the output has no columns of the right input."""
        return self.kind in ("semi", "anti")

    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(fields that name columns of the left input only, fields that name columns of the right input
        only)."""
        return ("left_keys",), ("right_keys",)

    def keeps_right(self) -> bool:
        """Whether the operator keeps rows of the right input in its state."""
        return True

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        width = len(self.left.schema)
        used = need | referenced(self.condition)
        left = {c for c in used if c < width}
        right = {c - width for c in used if c >= width}
        of_left, of_right = self.sides()
        for wanted, names in ((left, of_left), (right, of_right)):
            for name in names:
                wanted |= referenced(getattr(self, name))
        return [(self.left, left), (self.right, right)]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        left, ml = pruner.own(self, self.left)
        right, mr = pruner.own(self, self.right) if self.keeps_right() else pruner.run(self.right)
        width, new_width = len(self.left.schema), len(left.schema)
        both = {**ml, **{c + width: i + new_width for c, i in mr.items()}}
        of_left, of_right = self.sides()
        changes: dict[str, Any] = {
            "left": left,
            "right": right,
            "condition": moved(self.condition, both),
            **{name: moved(getattr(self, name), ml) for name in of_left},
            **{name: moved(getattr(self, name), mr) for name in of_right},
            **self.moved_pairs(ml, mr),
        }
        if self.one_sided:
            return replace(self, schema=renamed(left.schema.fields, self.schema, ml), **changes), ml
        fields = (*left.schema.fields, *right.schema.fields)
        return replace(self, schema=renamed(fields, self.schema, both), **changes), both

    def moved_pairs(self, left: Mapping_, right: Mapping_) -> dict[str, Any]:
        """The fields that name columns of both sides, with the columns at their new places."""
        return {}

    def unawaited(self) -> tuple[str, Sequence[Expr]]:
        return "the condition of a join", () if self.condition is None else (self.condition,)

    def check(self) -> None:
        left, right = self.left.schema.types, self.right.schema.types
        soundness.indices(self.left_keys, left)
        soundness.indices(self.right_keys, right)
        soundness.equal_keys(self.left_keys, self.right_keys, left, right)
        if self.condition is not None:
            soundness.expression(self.condition, [*left, *right])
            soundness.boolean(self.condition.type, "the condition")
        self.check_times(left, right)
        soundness.types(self.schema.types, left if self.one_sided else [*left, *right])

    def check_times(self, left: Sequence[LogicalType], right: Sequence[LogicalType]) -> None:
        """Checks the columns of times and windows."""


class Join(Pairing, frozen=True, kw_only=True, tag="join"):
    """A regular, interval or window join. ``condition``: what remains beside the keys. The optimiser sets
    ``interval`` (see ``JoinSpec``) or ``window`` (the left, then the right, columns of start and end) if it
    recognises such a join."""

    physical: ClassVar[str] = "penstock.plan.operators.join.physical:join"

    left: Node
    right: Node
    kind: Literal["inner", "left", "right", "full", "semi", "anti"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: tuple[bool, ...] = ()
    condition: Expr | None = None
    interval: tuple[int, int, int, int] | None = None
    window: tuple[tuple[int, int], tuple[int, int]] | None = None
    #: How long a regular join keeps the rows of the left and the right input, ms; 0: for ever; None:
    #: ``table.exec.state.ttl``.
    lifetimes: tuple[int | None, int | None] = (None, None)
    #: How Spark is to run the join, and the input that this is said of.
    strategy: tuple[Literal["broadcast", "shuffle_hash", "merge"], Literal["left", "right"]] | None = None
    schema: Schema

    @property
    def hinted(self) -> bool:
        """Whether the query says something of just this join, which therefore stays where it is written."""
        return self.lifetimes != (None, None) or self.strategy is not None

    # -- columns -------------------------------------------------------------------------------

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        (left_node, left), (right_node, right) = super().demands(need)
        if self.interval:
            left.add(self.interval[0])
            right.add(self.interval[1])
        if self.window:
            left |= set(self.window[0])
            right |= set(self.window[1])
        return [(left_node, left), (right_node, right)]

    def moved_pairs(self, left: Mapping_, right: Mapping_) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if self.interval:
            a, b, low, high = self.interval
            changes["interval"] = (left[a], right[b], low, high)
        if self.window:
            changes["window"] = (moved(self.window[0], left), moved(self.window[1], right))
        return changes

    # -- what is known of the rows -------------------------------------------------------------

    def properties(self, analysis: Analysis) -> Properties:
        left, right = analysis.of(self.left), analysis.of(self.right)
        bounded = left.bounded and right.bounded
        width = len(self.left.schema)
        shifted = right.moved({i: i + width for i in range(len(self.right.schema))})
        unique = left.unique if self.one_sided else self._unique(left, right, shifted)
        if self.interval or self.window:
            return Properties(
                bounded=bounded,
                lags=dict(left.lags) if self.one_sided else {**left.lags, **shifted.lags},
                rowtimes=left.rowtimes if self.one_sided else left.rowtimes | shifted.rowtimes,
                window=left.window if self.window else None,
                unique=unique,
                timeline=left.timeline,
            )
        updating = left.updating or right.updating or self.kind not in ("inner", "semi")
        return Properties(bounded=bounded, updating=updating, unique=unique)

    def _unique(self, left: Properties, right: Properties, shifted: Properties) -> tuple[frozenset[int], ...]:
        out: list[frozenset[int]] = []
        right_fixed = any(key <= set(self.right_keys) for key in right.unique)
        left_fixed = any(key <= set(self.left_keys) for key in left.unique)
        if right_fixed and self.kind in ("inner", "left"):
            out.extend(left.unique)
        if left_fixed and self.kind in ("inner", "right"):
            out.extend(shifted.unique)
        pairs = [a | b for a in left.unique for b in shifted.unique]
        if self.kind == "full":
            # In a full join a pair of keys may be all NULL for an unmatched left row and for an unmatched
            # right row: only a key with a column that is never NULL in its input tells them apart.
            pairs = [key for key in pairs if any(not self._own_type(i).nullable for i in key)]
        out.extend(pairs)
        return tuple(dict.fromkeys(out))

    def _own_type(self, column: int) -> LogicalType:
        """The type of an output column in its input, before an outer join fills it with NULL."""
        width = len(self.left.schema)
        return self.left.schema.types[column] if column < width else self.right.schema.types[column - width]

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        if self.kind not in ("inner", "left", "semi", "anti"):
            return ()
        if self.kind != "inner":
            return ((self.left, None),)
        width = len(self.left.schema)
        return (self.left, None), (self.right, {i: i + width for i in range(len(self.right.schema))})

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        left, right = empty
        if self.kind in ("inner", "semi"):
            return left or right
        of_one = (left and self.kind in ("left", "anti")) or (right and self.kind == "right")
        return (left and right) or of_one

    def push_down(self, pusher: PushDown, parts: list[Expr]) -> Node:
        made: Node = loaded("penstock.plan.operators.join.pushdown:push")(pusher, self, parts)
        return made

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        width = len(self.left.schema)
        left = frozenset(i for i in key if i < width)
        right = frozenset(i - width for i in key if i >= width)
        by_left, by_right = set(self.left_keys) <= left, set(self.right_keys) <= right
        match self.kind:
            case "inner":
                together = by_left or by_right
            case "right":
                together = by_right
            case "full":
                together = by_left and by_right
            case _:
                together = by_left
        # The two columns of an equality have one value: if one is in the key, the other is known, too.
        met = list(zip(self.left_keys, self.right_keys, strict=True))
        left, right = left | {a for a, b in met if b in right}, right | {b for a, b in met if a in left}
        return (
            together
            and analysis.in_order(self.left, left)
            and (self.one_sided or analysis.in_order(self.right, right))
        )

    # -- identity ------------------------------------------------------------------------------

    def relation(self, lineage: Lineage) -> Relation:
        left, right = lineage.of(self.left), lineage.of(self.right)
        tables = left.tables | right.tables
        if set(left.atoms) & set(right.atoms):
            left, right = words.marked(left, "left"), words.marked(right, "right")
        conditions = self.conditions(left, right)
        if self.kind == "inner":
            return words.Relation(
                tables,
                (*left.atoms, *right.atoms),
                left.conditions | right.conditions | conditions,
                (*left.columns, *right.columns),
            )
        on = " and ".join(sorted(conditions))
        atom = words.bounded(f"{self.kind}({left.rows}; {right.rows}; {on})")
        if self.one_sided:
            return words.opaque(tables, atom, left.columns)
        return words.opaque(
            tables,
            atom,
            (
                *(left.columns if self.kind == "left" else words.optional(left.columns)),
                *(right.columns if self.kind == "right" else words.optional(right.columns)),
            ),
        )

    def conditions(self, left: Relation, right: Relation) -> frozenset[str]:
        """All conditions that a pair of rows must meet, in words."""
        both = (*left.columns, *right.columns)
        safe = self.null_safe or (False,) * len(self.left_keys)
        said = [
            words.bounded(
                f"{' <=> ' if null_safe else ' = '}".join(sorted((left.columns[a], right.columns[b])))
            )
            for a, b, null_safe in zip(self.left_keys, self.right_keys, safe, strict=True)
        ]
        said += [words.expression(c, both) for c in conjuncts(self.condition)]
        if self.interval is not None:
            lt, rt, low, high = self.interval
            said.append(
                words.bounded(
                    f"{right.columns[rt]} between {low / 1000:g} and {high / 1000:g} ms of {left.columns[lt]}"
                )
            )
        if self.window is not None:
            (ls, _), (rs, _) = self.window
            said.append(words.bounded(" = ".join(sorted((left.columns[ls], right.columns[rs])))))
        return frozenset(said)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        spec = op.spec
        assert isinstance(spec, (s.JoinSpec, s.WindowJoinSpec))
        below = [lineage.of(side) for side in self.children()]
        rows = [words.typed(r.columns, c.schema.types) for r, c in zip(below, self.children(), strict=True)]
        parts: dict[str, str] = {"kind": self.kind}
        keys = (spec.left_keys, spec.right_keys)
        for i, side in enumerate(("left", "right")):
            parts[f"{side} keys"] = words.listed(rows[i], keys[i])
            parts[f"{side} rows"] = below[i].rows
            parts[f"{side} columns"] = words.bounded(", ".join(rows[i]))
        if isinstance(spec, s.JoinSpec) and spec.interval is None:
            parts["left unique"] = words.listed(rows[0], spec.left_unique)
            parts["right unique"] = words.listed(rows[1], spec.right_unique)
        if isinstance(spec, s.JoinSpec) and any(spec.null_safe):
            parts["null keys"] = " ".join("match" if x else "differ" for x in spec.null_safe)
        if self.interval is not None or self.window is not None or self.kind != "inner":
            # The condition decides how long rows stay, and which of them have found a match.
            parts["condition"] = words.bounded(" and ".join(sorted(self.conditions(*below))))
        return parts, {}

    # -- words ---------------------------------------------------------------------------------

    def explained(self) -> str:
        parts: list[str] = [self.kind]
        pairs = key_pairs(self.left.schema, self.right.schema, self.left_keys, self.right_keys)
        if pairs:
            parts.append(pairs)
        if self.interval:
            a, b, low, high = self.interval
            left, right = self.left.schema.names[a], self.right.schema.names[b]
            span = f"{shifted(f'left.{left}', low)} AND {shifted(f'left.{left}', high)}"
            parts.append(f"right.{right} BETWEEN {span}")
        if self.window:
            parts.append("equal windows")
        if self.condition is not None:
            parts.append(text(self.condition, Schema((*self.left.schema.fields, *self.right.schema.fields))))
        kind = "IntervalJoin" if self.interval else "WindowJoin" if self.window else "Join"
        return f"{kind}({', '.join(parts)})"

    def warnings(self, analysis: Analysis) -> Iterable[str]:
        """Warns of a cross product, unless one side is a single row."""
        if self.left_keys or self.window or self.interval or self.one_sided:
            return
        if any(frozenset() in analysis.of(side).unique for side in self.children()):
            return
        width = len(self.left.schema)
        columns = input_refs(self.condition) if self.condition is not None else set[int]()
        if columns and min(columns) < width <= max(columns):
            return
        left, right = (", ".join(side.schema.names[:3]) for side in self.children())
        yield (
            f"cross product, Join({self.kind}): no condition connects ({left}, …) with ({right}, …), "
            "so every row meets every row; add an equality between them"
        )

    # -- soundness and running -----------------------------------------------------------------

    def check_times(self, left: Sequence[LogicalType], right: Sequence[LogicalType]) -> None:
        if self.interval is not None:
            soundness.indices([self.interval[0]], left)
            soundness.indices([self.interval[1]], right)
        if self.window is not None:
            soundness.indices(self.window[0], left)
            soundness.indices(self.window[1], right)
