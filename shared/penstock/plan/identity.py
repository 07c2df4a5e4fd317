"""Names operators and says what their state means, once the operator graph is planned.

A name says for which statement an operator works, what it does, over which base tables, and the
how-manieth of its kind it is there, counted from the sources: adding a filter, a column or a
statement changes no name. The meaning is in the words of ``plan.lineage``.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SpecError
from penstock.jobgraph import specs as s
from penstock.jobgraph.identity import OperatorIdentity
from penstock.plan import lineage as words
from penstock.plan import nodes as n
from penstock.plan.earlier_ids import EarlierFingerprints
from penstock.plan.operators import all_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.jobgraph.graph import FunctionArtifact
    from penstock.plan.lineage import Lineage, Relation
    from penstock.plan.operators import PlannedOperator

#: Fields of a Transform's spec that say what its state is. All others may change: functions are
#: the user's own, and what they declare is compared by ``api.restore_check``.
_OF_TRANSFORMS: dict[type, tuple[str, ...]] = {
    s.KeyedProcessSpec: ("kind",),
    s.KeyedWindowSpec: ("kind", "window", "event_time", "trigger"),
}


def identify(
    operators: Sequence[PlannedOperator], lineage: Lineage, functions: Mapping[str, FunctionArtifact]
) -> None:
    """Sets the identity and the uid of every operator. ``operators`` in topological order;
    ``functions``: the job's function table."""
    exact = EarlierFingerprints({name: _code(artifact) for name, artifact in functions.items()})
    statements = _statements(operators)
    names = _Names(operators, lineage)
    taken = _given(operators)
    for op in operators:
        meaning, columns = _meaning(op, lineage)
        op.identity = OperatorIdentity(
            given=op.given,
            names=names.of(op, statements[id(op)]),
            meaning=meaning,
            columns=columns,
            layout=_layout(op, meaning),
            exact="" if op.node is None else f"{op.kind}-{exact.of(op.node)}",
            former=() if op.given else (op.uid,),
        )
        if not op.given:
            op.uid = _free(_uid(op, op.identity), taken)
            taken.add(op.uid)


def _code(artifact: FunctionArtifact) -> str:
    return hashlib.sha256(msgspec.json.encode(artifact)).hexdigest()[:16]


def _given(operators: Sequence[PlannedOperator]) -> set[str]:
    """The uids that the user gave. SpecError when two operators have one."""
    by_uid: dict[str, str] = {}
    for op in operators:
        if op.given and op.uid in by_uid:
            raise SpecError(
                f"two operators have the uid '{op.uid}'",
                expected="one operator with that uid: its state is found by it",
                got=f"'{by_uid[op.uid]}' and '{op.name}'",
                remedy="give one of them another uid",
            )
        if op.given:
            by_uid[op.uid] = op.name
    return set(by_uid)


def _uid(op: PlannedOperator, identity: OperatorIdentity) -> str:
    data = msgspec.json.encode([sorted(identity.names), identity.digest])
    return f"{op.kind}-{hashlib.sha256(data).hexdigest()[:16]}"


def _free(wanted: str, taken: set[str]) -> str:
    uid, number = wanted, 0
    while uid in taken:
        number += 1
        uid = f"{wanted}-{number}"
    return uid


# -- names ---------------------------------------------------------------------------------


def _statements(operators: Sequence[PlannedOperator]) -> dict[int, tuple[str, ...]]:
    """By operator: the statements that it feeds, each in one or two spellings."""
    found: dict[int, dict[str, None]] = {id(op): {} for op in operators}
    for op in reversed(operators):
        own = found[id(op)]
        if isinstance(op.spec, s.SinkSpec) and isinstance(op.node, n.Sink):
            own.update(dict.fromkeys(statement_names(op.node)))
        for inp in all_inputs(op):
            found[id(inp.source)].update(own)
    return {op: tuple(sorted(own)) for op, own in found.items()}


def statement_names(sink: n.Sink) -> tuple[str, ...]:
    """``into t`` and ``into t (a, b)``: a statement that gets a column more is still found by the
    first, two statements into one table are told apart by the second. Its label is instead of both."""
    target = f"into {sink.name or sink.table.name}"
    if sink.label:
        return (f"{target} [{sink.label}]",)
    columns = sink.columns or tuple(sink.schema.names)
    return (target, f"{target} ({', '.join(columns)})")


class _Names:
    def __init__(self, operators: Sequence[PlannedOperator], lineage: Lineage) -> None:
        self._lineage = lineage
        self._roles = {id(op): self._role(op) for op in operators}
        #: Operator → role → how many of it are below, on the longest path.
        self._below: dict[int, dict[str, int]] = {}
        for op in operators:
            below: dict[str, int] = {}
            for inp in all_inputs(op):
                source = inp.source
                for role, count in self._below[id(source)].items():
                    below[role] = max(below.get(role, 0), count)
                role = self._roles[id(source)]
                below[role] = max(below.get(role, 0), self._below[id(source)].get(role, 0) + 1)
            self._below[id(op)] = below
        #: Sources that read their table alone need no statement to be known by.
        self._readers: dict[str, int] = {}
        for op in operators:
            if _reads(op):
                role = self._roles[id(op)]
                self._readers[role] = self._readers.get(role, 0) + 1

    def of(self, op: PlannedOperator, statements: Sequence[str]) -> tuple[str, ...]:
        role = self._roles[id(op)]
        if _reads(op) and self._readers[role] == 1:
            return (role,)
        number = self._below[id(op)].get(role, 0)
        name = f"{role} {number + 1}" if number else role
        return tuple(f"{statement}: {name}" for statement in statements)

    def _role(self, op: PlannedOperator) -> str:
        node = op.node
        assert node is not None
        if isinstance(op.spec, s.SinkSpec):
            return "sink"
        if isinstance(node, n.Transform):
            return f"{op.spec.__struct_config__.tag} '{node.name}' {_set(self._lineage.of(node).tables)}"
        if isinstance(node, (n.Join, n.TemporalJoin, n.SetOperation)):
            sides = sorted(_set(self._lineage.of(side).tables) for side in (node.left, node.right))
            return f"{op.kind} {' '.join(sides)}"
        return f"{op.kind} {_set(self._lineage.of(node).tables)}"


def _reads(op: PlannedOperator) -> bool:
    return isinstance(op.spec, (s.EnumeratorSpec, s.SourceSpec, s.CollectionSourceSpec))


def _set(tables: frozenset[str]) -> str:
    return "{" + ", ".join(sorted(tables)) + "}"


# -- meaning -------------------------------------------------------------------------------

_STATEFUL = (
    s.GroupAggregateSpec, s.WindowAggregateSpec, s.JoinSpec, s.WindowJoinSpec, s.TemporalJoinSpec, s.TopNSpec,
    s.DeduplicateSpec, s.OverSpec, s.OverFinalSpec, s.SortSpec, s.LimitSpec, s.TemporalSortSpec, s.MaterializeSpec,
    s.NormalizeSpec, s.SetOperationSpec, s.WindowTableSpec,
)  # fmt: skip
#: Options whose values are written nowhere.
_SECRET = re.compile("password|secret|token|credential|key", re.IGNORECASE)
#: Parts that say which rows are stored, not how.
_UNSTORED = frozenset(("input", "left rows", "right rows", "condition", "reads", "writes"))
_Meaning = tuple[dict[str, str], dict[str, tuple[str, ...]]]


def _meaning(op: PlannedOperator, lineage: Lineage) -> _Meaning:
    """(part → words, state → columns); nothing for an operator that keeps nothing."""
    node, spec = op.node, op.spec
    match spec:
        case s.EnumeratorSpec() | s.SourceSpec() if isinstance(node, n.Scan):
            return {"reads": _place(node.table)}, {}
        case s.SinkSpec() if isinstance(node, n.Sink):
            return {"writes": _place(node.table)}, {}
        case s.CollectionSourceSpec():
            return {"reads": f"VALUES#{hashlib.sha256(spec.data.encode()).hexdigest()[:16]}"}, {}
    if isinstance(node, n.Transform):
        return _of_transform(node), {}
    if node is None or not isinstance(spec, _STATEFUL) or getattr(spec, "phase", "") == "local":
        return {}, {}
    below = [lineage.of(i) for i in n.inputs_of(node)]
    types = [i.schema.types for i in n.inputs_of(node)]
    rows = [words.typed(r.columns, x) for r, x in zip(below, types, strict=True)]
    match spec:
        case s.GroupAggregateSpec():
            return _of_aggregate(node, spec, below[0], rows[0])
        case s.WindowAggregateSpec():
            assert isinstance(node, n.WindowAggregate)
            parts, columns = _of_aggregate(node, spec, below[0], rows[0])
            return {"window": words.window_of(node, below[0].columns), **parts}, columns
        case s.JoinSpec() | s.WindowJoinSpec():
            return _of_join(node, spec, below, rows), {}
        case s.TemporalJoinSpec():
            assert isinstance(node, n.TemporalJoin)
            return {
                "kind": node.kind,
                "left keys": _listed(rows[0], node.left_keys),
                "left rows": below[0].rows,
                "left columns": ", ".join(rows[0]),
                "left time": rows[0][spec.left_time],
                "right keys": _listed(rows[1], node.right_keys),
                "right rows": below[1].rows,
                "right columns": ", ".join(rows[1]),
                "right time": rows[1][spec.right_time],
            }, {}
        case s.SetOperationSpec():
            return {
                "kind": f"{spec.kind} {'all' if spec.all else 'distinct'}",
                "left rows": f"({', '.join(rows[0])}) of {below[0].rows}",
                "right rows": f"({', '.join(rows[1])}) of {below[1].rows}",
            }, {}
        case s.LimitSpec():
            return {"input": below[0].rows}, {}
    return _of_rows(node, spec, below[0], rows[0]), {}


def _layout(op: PlannedOperator, meaning: dict[str, str]) -> str:
    """What must be equal for the stored bytes to be readable at all."""
    node, spec = op.node, op.spec
    if isinstance(spec, (s.GroupAggregateSpec, s.WindowAggregateSpec)) and meaning:
        assert isinstance(node, (n.Aggregate, n.WindowAggregate))
        types = node.input.schema.types
        calls = [
            f"{c.function}{' DISTINCT' if c.distinct else ''}({', '.join(str(types[a]) for a in c.args)}) {c.type}"
            for c in node.aggregates
        ]
        keys = [str(types[k]) for k in node.keys]
        return words.bounded("; ".join([*keys, *calls, meaning.get("window", ""), meaning["changes"]]))
    if isinstance(node, n.Transform):
        return "; ".join(value for part, value in meaning.items() if part.startswith(("keys", "kind")))
    parts = (part for part in meaning if part not in _UNSTORED)
    return words.bounded("; ".join(f"{part}: {meaning[part]}" for part in parts))


def _of_rows(node: n.Node, spec: s.OperatorSpec, below: Relation, row: tuple[str, ...]) -> dict[str, str]:
    """Of operators that keep rows of their one input."""
    columns = below.columns
    parts: dict[str, str] = {"input": below.rows, "columns": words.bounded(", ".join(row))}
    match spec:
        case s.TopNSpec():
            parts["keys"] = _listed(row, spec.partition)
            parts["order"] = words.order_words(spec.order, columns)
            number = "with" if spec.rank_column else "without"
            parts["ranks"] = f"{spec.rank} {spec.first} to {spec.last}, {number} the number"
            parts["unique"] = _listed(row, spec.unique_keys)
            parts["changes"] = f"{_updates(spec.retracts)}, {_befores(spec.emit_before)}"
            if spec.window is not None:
                parts["window"] = _listed(row, spec.window)
        case s.DeduplicateSpec():
            parts["keys"] = _listed(row, spec.keys)
            parts["keeps"] = f"{spec.keep} by {'arrival' if spec.time is None else row[spec.time]}"
            if spec.window is not None:
                parts["window"] = _listed(row, spec.window)
            elif spec.keep == "first" and spec.time is None:
                parts["columns"] = "none"  # a key that was seen
            elif not spec.emit_before:
                parts["columns"] = "the time"
        case s.OverSpec() | s.OverFinalSpec():
            assert isinstance(node, n.Over)
            parts["keys"] = _listed(row, spec.partition)
            parts["order"] = words.order_words(spec.order, columns)
            parts["frame"] = f"{spec.frame} {spec.preceding} {getattr(spec, 'following', 0)}"
            parts["functions"] = _calls(spec.aggregates, columns)
            if isinstance(spec, s.OverSpec) and (spec.lags or spec.read_at):
                lags = [f"LAG({row[a]}, {by}{'' if d is None else f', {row[d]}'})" for a, by, d in spec.lags]
                parts["functions"] += "; " + ", ".join([*lags, *spec.read_at])
        case s.SortSpec():
            parts["order"] = words.order_words(spec.order, columns)
        case s.TemporalSortSpec():
            parts["order"] = ", ".join((row[spec.time], words.order_words(spec.order, columns)))
        case s.MaterializeSpec() | s.NormalizeSpec():
            parts["keys"] = _listed(row, spec.keys)
        case s.WindowTableSpec() if spec.window.kind == "session":
            parts["window"] = words.window_words(spec.window, columns, [row[k] for k in spec.keys])
        case _:
            return {}
    return parts


def _of_aggregate(
    node: n.Node, spec: s.GroupAggregateSpec | s.WindowAggregateSpec, below: Relation, row: tuple[str, ...]
) -> _Meaning:
    assert isinstance(node, (n.Aggregate, n.WindowAggregate))
    parts = {"keys": _listed(row, node.keys), "input": below.rows, "changes": _updates(spec.retracts)}
    if isinstance(spec, s.GroupAggregateSpec) and spec.bounded_final:
        parts["results"] = "at the end"
    calls = tuple(
        words.bounded(
            f"{words.call_words(c, below.columns)} of {', '.join(row[a] for a in c.args) or 'rows'}"
        )
        for c in node.aggregates
    )
    return parts, {"cells": calls}


def _of_join(
    node: n.Node, spec: s.JoinSpec | s.WindowJoinSpec, below: list[Relation], rows: list[tuple[str, ...]]
) -> dict[str, str]:
    assert isinstance(node, n.Join)
    parts: dict[str, str] = {"kind": node.kind}
    keys = (spec.left_keys, spec.right_keys)
    for i, side in enumerate(("left", "right")):
        parts[f"{side} keys"] = _listed(rows[i], keys[i])
        parts[f"{side} rows"] = below[i].rows
        parts[f"{side} columns"] = words.bounded(", ".join(rows[i]))
    if isinstance(spec, s.JoinSpec) and spec.interval is None:
        parts["left unique"] = _listed(rows[0], spec.left_unique)
        parts["right unique"] = _listed(rows[1], spec.right_unique)
    if isinstance(spec, s.JoinSpec) and any(spec.null_safe):
        parts["null keys"] = " ".join("match" if x else "differ" for x in spec.null_safe)
    if node.interval is not None or node.window is not None or node.kind != "inner":
        # How long rows stay, and which of them have found a match, follows from the condition.
        left, right = below
        parts["condition"] = words.bounded(" and ".join(sorted(words.join_conditions(node, left, right))))
    return parts


def _of_transform(node: n.Transform) -> dict[str, str]:
    fields = _OF_TRANSFORMS.get(type(node.spec))
    if fields is None:
        return {}
    parts = {name: msgspec.json.encode(getattr(node.spec, name), order="sorted").decode() for name in fields}
    keys = node.spec.keys  # type: ignore[union-attr]
    per_input = keys if keys and isinstance(keys[0], tuple) else (keys,)
    for i, (child, own) in enumerate(zip(node.inputs, per_input, strict=False)):
        parts[f"keys {i + 1}"] = ", ".join(str(child.schema.types[k]) for k in own)
    return parts


def _place(table: n.TableRef) -> str:
    if table.location is None:
        located = {k: v for k, v in table.options.items() if not _SECRET.search(k)}
    else:
        located = {k: table.options[k] for k in table.location if k in table.options}
    where = ", ".join(f"{k} = {v}" for k, v in sorted(located.items()) if k != "connector")
    return words.bounded(f"{table.connector}({where})")


def _listed(row: Sequence[str], columns: Sequence[int]) -> str:
    return words.bounded(", ".join(row[c] for c in columns))


def _calls(calls: Sequence[Any], columns: Sequence[str]) -> str:
    return words.bounded(", ".join(words.call_words(c, columns) for c in calls))


def _updates(retracts: bool) -> str:
    return "rows change" if retracts else "rows are only added"


def _befores(emit_before: bool) -> str:
    return "sends what it replaces" if emit_before else "sends new rows only"
