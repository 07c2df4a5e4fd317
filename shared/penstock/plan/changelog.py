"""Changelog modes: which edges carry updates, and who needs the −U rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import UnsupportedError
from penstock.functions.expr import InputRef
from penstock.plan import nodes as n
from penstock.plan.rewriting import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.properties import Analysis

Mode = Literal["append", "upsert", "retract"]
#: Connectors that take updates by whatever key the query has.
_ANY_KEY = ("blackhole", "collect")


@dataclass(frozen=True, slots=True)
class SinkMode:
    """What a sink receives; ``materialize``: an upsert materialiser on its key comes first."""

    mode: Mode
    keys: tuple[int, ...] = ()
    materialize: bool = False


class ChangelogModes:
    """Modes for a whole plan. ``before(node)``: somebody needs the node's −U rows."""

    def __init__(self, sinks: Sequence[n.Sink], analysis: Analysis) -> None:
        self._analysis = analysis
        self._before: dict[int, bool] = {}
        self.sinks = {id(s): sink_mode(s, analysis) for s in sinks}
        order = walk(sinks)
        for node in reversed(order):
            wanted = self._before.get(id(node), False)
            if isinstance(node, n.Sink):
                wanted = self.sinks[id(node)].mode == "retract" or self.sinks[id(node)].materialize
            for child in n.inputs_of(node):
                self._before[id(child)] = self._before.get(id(child), False) or _asks_before(node, wanted)

    def before(self, node: n.Node) -> bool:
        return self._before.get(id(node), False)

    def mode(self, node: n.Node) -> Mode:
        """The changelog mode of the node's output edge."""
        known = self._analysis.of(node)
        if not known.updating:
            return "append"
        return "retract" if self.before(node) or not known.unique else "upsert"


def _asks_before(node: n.Node, wanted: bool) -> bool:
    match node:
        case (
            n.Project()
            | n.AsyncCalc()
            | n.LocalTime()
            | n.Limit()
            | n.Sink()
            | n.AssignWatermarks()
            | n.SideOutput()
        ):
            return wanted
        case n.Union_():
            return True
        case n.Scan() | n.Values():
            return False
        case _:
            # A filter must see the old row to take it back; stateful operators retract it.
            return True


def smallest_key(unique: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """The shortest of several keys, sorted; empty when there is none."""
    shortest: frozenset[int] | None = None
    for key in unique:
        if shortest is None or len(key) < len(shortest):
            shortest = key
    return tuple(sorted(shortest or ()))


def in_order(node: n.Node, key: frozenset[int], analysis: Analysis) -> bool:
    """Whether all changes of a row of this key come out of one subtask, the old row's end before
    the new one's beginning: a −U may then delete by key."""
    if not analysis.of(node).updating:
        return True
    match node:
        case n.Filter() | n.AsyncCalc() | n.LocalTime() | n.AssignWatermarks():
            width = len(node.input.schema)
            return in_order(node.input, frozenset(i for i in key if i < width), analysis)
        case n.Project():
            taken = (node.expressions[i] for i in key)
            return in_order(
                node.input, frozenset(e.index for e in taken if isinstance(e, InputRef)), analysis
            )
        case n.Aggregate():
            return set(range(len(node.keys))) <= key
        case n.Scan() | n.SetOperation():
            return any(unique <= key for unique in analysis.of(node).unique)
        case n.Sort() | n.Limit():
            return in_order(node.input, key, analysis)
        case n.TopN():
            width = len(node.input.schema)
            if node.rank_column and width in key:
                return set(node.partition) <= key  # a rank's row is the operator's own
            return set(node.partition) <= key and in_order(node.input, key, analysis)
        case n.Join():
            return _join_in_order(node, key, analysis)
    return False


def _join_in_order(node: n.Join, key: frozenset[int], analysis: Analysis) -> bool:
    width = len(node.left.schema)
    left = frozenset(i for i in key if i < width)
    right = frozenset(i - width for i in key if i >= width)
    by_left, by_right = set(node.left_keys) <= left, set(node.right_keys) <= right
    match node.kind:
        case "inner":
            together = by_left or by_right
        case "right":
            together = by_right
        case "full":
            together = by_left and by_right
        case _:
            together = by_left
    # Columns that meet are equal: one of them in the key fixes the other.
    met = list(zip(node.left_keys, node.right_keys, strict=True))
    left, right = left | {a for a, b in met if b in right}, right | {b for a, b in met if a in left}
    one_sided = node.kind in ("semi", "anti")
    return (
        together
        and in_order(node.left, left, analysis)
        and (one_sided or in_order(node.right, right, analysis))
    )


def sink_mode(sink: n.Sink, analysis: Analysis) -> SinkMode:
    """UnsupportedError when the table takes no updates."""
    known = analysis.of(sink.input)
    table = sink.table
    if not known.updating:
        return SinkMode("append", ())
    names = sink.schema.names
    declared = tuple(names.index(c) for c in table.primary_key) or sink.upsert_keys
    if declared and "upsert" in table.sink_modes:
        key = frozenset(declared)
        fits = key in known.unique and in_order(sink.input, key, analysis)
        return SinkMode("upsert", declared, materialize=not fits)
    if "upsert" in table.sink_modes and table.connector in _ANY_KEY and known.unique:
        keys = smallest_key(known.unique)
        return SinkMode("upsert", keys, materialize=not in_order(sink.input, frozenset(keys), analysis))
    if "retract" in table.sink_modes:
        return SinkMode("retract", declared)
    if "upsert" in table.sink_modes:
        raise UnsupportedError(
            f"table '{table.name}' takes updates by key, but declares none",
            expected="PRIMARY KEY (…) NOT ENFORCED in the table",
            got="an updating query",
            where=f"table '{table.name}'",
            remedy="declare the primary key that the query's rows are updated by",
        )
    raise UnsupportedError(
        f"table '{table.name}' takes only inserts, but the query updates its rows",
        expected="an append-only query, or a connector that takes updates",
        got=f"an updating query into connector '{table.connector}'",
        where=f"table '{table.name}'",
        remedy="aggregate over windows (TABLE(TUMBLE(…))), or write to a connector with upserts",
    )
