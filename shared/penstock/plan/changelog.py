"""Changelog modes: which edges carry updates, and which consumers need the −U rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from penstock.errors import UnsupportedError
from penstock.plan.final_rows import are_collected
from penstock.plan.operators.sink.node import Sink
from penstock.plan.rewriting import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.node import Node
    from penstock.plan.properties import Analysis

Mode = Literal["append", "upsert", "retract"]
#: Connectors that take updates by any key: the key of the query is used.
_ANY_KEY = ("blackhole", "collect")


@dataclass(frozen=True, slots=True)
class SinkMode:
    """The rows that a sink receives; ``materialize``: an upsert materialiser on its key comes first; ``collected``:
    the rows wait for the end of the input, so that none is taken back."""

    mode: Mode
    keys: tuple[int, ...] = ()
    materialize: bool = False
    collected: bool = False


class ChangelogModes:
    """The changelog mode of every edge of a plan. ``sinks``: the mode of each sink, by id."""

    def __init__(self, sinks: Sequence[Sink], analysis: Analysis) -> None:
        self._analysis = analysis
        self._before: dict[int, bool] = {}
        self.sinks = {id(s): sink_mode(s, analysis) for s in sinks}
        order = walk(sinks)
        for node in reversed(order):
            wanted = self._before.get(id(node), False)
            if isinstance(node, Sink):
                how = self.sinks[id(node)]
                wanted = how.mode == "retract" or how.materialize or how.collected
            for child in node.children():
                self._before[id(child)] = self._before.get(id(child), False) or node.asks_before(wanted)

    def before(self, node: Node) -> bool:
        """Whether the node must emit −U before +U."""
        return self._before.get(id(node), False)

    def mode(self, node: Node) -> Mode:
        """The changelog mode of the node's output edge."""
        known = self._analysis.of(node)
        if not known.updating:
            return "append"
        return "retract" if self.before(node) or not known.unique else "upsert"


def smallest_key(unique: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """The shortest of several keys, sorted; empty when there is none."""
    shortest: frozenset[int] | None = None
    for key in unique:
        if shortest is None or len(key) < len(shortest):
            shortest = key
    return tuple(sorted(shortest or ()))


def keys_in_order(node: Node, analysis: Analysis) -> list[frozenset[int]]:
    """The keys of a node's rows by which a consumer can find the old row of an update; see
    ``Node.in_order``."""
    return [key for key in analysis.of(node).unique if analysis.in_order(node, key)]


def sink_mode(sink: Sink, analysis: Analysis) -> SinkMode:
    """The mode in which a sink receives rows. Raises UnsupportedError if the query updates rows and the table
    takes no updates, or if the table takes rows by key only and declares no key."""
    collected = are_collected(sink.input, analysis)
    known = analysis.of(sink.input)
    if collected:
        known = replace(known, updating=False)
    table = sink.table
    if not known.updating and ("append" in table.sink_modes or "upsert" not in table.sink_modes):
        return SinkMode("append", (), collected=collected)
    names = sink.schema.names
    declared = tuple(names.index(c) for c in table.primary_key) or sink.upsert_keys
    if declared and not known.updating:
        return SinkMode("upsert", declared, collected=collected)
    if declared and "upsert" in table.sink_modes:
        key = frozenset(declared)
        fits = key in known.unique and analysis.in_order(sink.input, key)
        return SinkMode("upsert", declared, materialize=not fits)
    if "upsert" in table.sink_modes and table.connector in _ANY_KEY and known.unique:
        fitting = keys_in_order(sink.input, analysis)
        return SinkMode("upsert", smallest_key(fitting or known.unique), materialize=not fitting)
    if "retract" in table.sink_modes:
        return SinkMode("retract", declared)
    if "upsert" in table.sink_modes:
        raise UnsupportedError(
            f"table '{table.name}' takes updates by key, but declares none",
            expected="PRIMARY KEY (…) NOT ENFORCED in the table",
            got="an updating query" if known.updating else "no primary key",
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
