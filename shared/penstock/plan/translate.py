"""Logical nodes → operators with specs, partitioning and parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import JOIN_UNBOUNDED_STATE, ON_ERROR, RUNTIME_MODE, SOURCE_PUSH_DOWN, STATE_TTL_MS
from penstock.errors import UnsupportedError
from penstock.functions.accumulators import accumulator_types
from penstock.functions.expr import Expr, FieldAccess, InputRef, children, input_refs, shift_refs
from penstock.jobgraph import specs as s
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA
from penstock.jobgraph.graph import Broadcast, Global, Hash, Partitioning
from penstock.plan import nodes as n
from penstock.plan.changelog import ChangelogModes, smallest_key
from penstock.plan.maximum import rows_of_maximum
from penstock.plan.operators import OperatorInput, PlannedOperator
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import Interner
from penstock.types.logical import (
    INTEGERS,
    MAX_UNSCALED_INT64_PRECISION,
    TIMESTAMPS,
    BigIntType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    LogicalType,
    RowType,
    Schema,
    TimeType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_bounded_final(plan: n.LogicalPlan) -> bool:
    """Whether the job gives final rows once: all inputs bounded, and not asked to stream."""
    mode = RUNTIME_MODE.read(plan.config)
    bounded = all(Analysis().of(sink).bounded for sink in plan.sinks)
    if mode == "BATCH" and not bounded:
        raise UnsupportedError(
            "the job is unbounded, but batch mode is set",
            expected="bounded inputs with execution.runtime-mode = BATCH",
            got="an unbounded source",
            remedy="SET 'execution.runtime-mode' = 'STREAMING', or bound the sources",
        )
    return bounded and mode != "STREAMING"


class Translator:
    def __init__(self, plan: n.LogicalPlan, analysis: Analysis, parallelism: int) -> None:
        self.plan = plan
        self.config = plan.config
        self.parallelism = parallelism
        self.ttl_ms = STATE_TTL_MS.read(plan.config)
        self.on_error: Any = ON_ERROR.read(plan.config)
        self.interner = Interner()
        self.sinks: list[n.Sink] = [self.interner.intern(sink) for sink in plan.sinks]  # type: ignore[misc]
        self.analysis = analysis
        self.modes = ChangelogModes(self.sinks, analysis)
        self.operators: list[PlannedOperator] = []
        self._memo: dict[int, OperatorInput] = {}
        self._uids: dict[str, int] = {}

    def translate(self) -> list[PlannedOperator]:
        """Operators in topological order."""
        done: set[int] = set()
        for sink in self.sinks:
            if id(sink) not in done:
                done.add(id(sink))
                self._sink(sink)
        return self.operators

    # -- helpers ------------------------------------------------------------------------------

    def visit(self, node: n.Node) -> OperatorInput:
        """Where the node's rows come from."""
        found = self._memo.get(id(node))
        if found is None:
            made = self._translate(node)
            found = OperatorInput(made) if isinstance(made, PlannedOperator) else made
            self._memo[id(node)] = found
        return OperatorInput(found.source, found.partitioning, found.tag)

    def add(
        self,
        node: n.Node,
        kind: str,
        name: str,
        spec: s.OperatorSpec,
        inputs: Sequence[OperatorInput | list[OperatorInput]],
        *,
        output: Schema | None = None,
        parallelism: int | None = None,
        hashed: tuple[int, ...] | None = None,
        uid: str | None = None,
        keeps: str = "",
        side_outputs: dict[str, Schema] | None = None,
        guarantee: str = "",
        mode: str | None = None,
    ) -> PlannedOperator:
        ports = [i if isinstance(i, list) else [i] for i in inputs]
        if parallelism is None:
            parallelism = max(
                (i.source.parallelism for port in ports for i in port), default=self.parallelism
            )
        op = PlannedOperator(
            uid=self._uid(uid or f"{kind}-{self.interner.fingerprint(node)}"),
            name=name,
            spec=spec,
            inputs=ports,
            output=output or node.schema,
            parallelism=parallelism,
            side_outputs=side_outputs or {},
            hashed=hashed,
            mode=mode or self.modes.mode(node),
            keeps=keeps,
            guarantee=guarantee,
        )
        self.operators.append(op)
        return op

    def _uid(self, wanted: str) -> str:
        seen = self._uids.get(wanted, 0)
        self._uids[wanted] = seen + 1
        return wanted if not seen else f"{wanted}-{seen}"

    def keyed(self, inp: OperatorInput, keys: tuple[int, ...]) -> tuple[OperatorInput, int]:
        """The input partitioned by ``keys`` and the parallelism behind it."""
        if not keys:
            same = inp.source.parallelism == 1
            return OperatorInput(inp.source, None if same else Global(), inp.tag), 1
        if inp.tag is None and inp.source.hashed == keys and inp.source.parallelism == self.parallelism:
            return OperatorInput(inp.source, None, inp.tag), self.parallelism
        return OperatorInput(inp.source, Hash(keys), inp.tag), self.parallelism

    def single(self, inp: OperatorInput) -> OperatorInput:
        return self.keyed(inp, ())[0]

    # -- nodes -----------------------------------------------------------------------------------

    def _translate(self, node: n.Node) -> PlannedOperator | OperatorInput:
        spec: s.OperatorSpec
        match node:
            case n.Scan():
                return self._scan(node)
            case n.Values():
                spec = s.CollectionSourceSpec(data=node.data, watermark=node.watermark)
                return self.add(node, "values", "Values", spec, [], parallelism=1, guarantee="exactly-once")
            case n.Filter():
                return self._calc(node, node.input, node.condition, None)
            case n.Project():
                if isinstance(node.input, n.Filter) and not self._shared(node.input):
                    return self._calc(node, node.input.input, node.input.condition, node.expressions)
                return self._calc(node, node.input, None, node.expressions)
            case n.AssignWatermarks():
                spec = s.AssignWatermarksSpec(
                    watermark=node.watermark, timestamp_function=node.timestamp_function
                )
                return self.add(node, "watermark", "AssignWatermarks", spec, [self.visit(node.input)])
            case n.WindowTable():
                return self._window_table(node)
            case n.Expand():
                spec = s.ExpandSpec(projections=node.projections)
                name = f"Expand({len(node.projections)} grouping sets)"
                return self.add(node, "expand", name, spec, [self.visit(node.input)])
            case n.Aggregate():
                return self._aggregate(node)
            case n.WindowAggregate():
                return self._window_aggregate(node)
            case n.Join():
                return self._join(node)
            case n.TemporalJoin():
                return self._temporal_join(node)
            case n.Union_():
                return self._union(node)
            case n.SetOperation():
                return self._set_operation(node)
            case n.Sort():
                return self._sort(node)
            case n.Limit():
                spec = s.LimitSpec(offset=node.offset, limit=node.limit)
                return self.add(
                    node,
                    "limit",
                    f"Limit({node.limit})",
                    spec,
                    [self.single(self.visit(node.input))],
                    parallelism=1,
                )
            case n.TopN():
                return self._top_n(node)
            case n.Over():
                return self._over(node)
            case n.Correlate():
                spec = s.TableFunctionSpec(
                    function=node.function, args=node.args, kind=node.kind, builtin=node.builtin, per=node.per,
                    on_error=self.on_error,
                )  # fmt: skip
                return self.add(
                    node, "table-function", f"Correlate({node.function})", spec, [self.visit(node.input)]
                )
            case n.Transform():
                return self._transform(node)
            case n.SideOutput():
                return OperatorInput(self.visit(node.input).source, None, node.tag)
        raise AssertionError(node)

    def _shared(self, node: n.Node) -> bool:
        return id(node) in self._memo

    def _calc(
        self, node: n.Node, source: n.Node, condition: Expr | None, projections: tuple[Expr, ...] | None
    ) -> PlannedOperator:
        inp = self.visit(source)
        names = [w for w, present in (("Filter", condition), ("Project", projections)) if present is not None]
        hashed = inp.source.hashed if inp.tag is None else None
        if hashed is not None and projections is not None:
            hashed = _moved_keys(hashed, projections)
        spec = s.CalcSpec(condition=condition, projections=projections, on_error=self.on_error)
        return self.add(node, "calc", "Calc(" + ", ".join(names) + ")", spec, [inp], hashed=hashed)

    def _scan(self, node: n.Scan) -> PlannedOperator:
        table = node.table
        columns = node.projection if node.projection is not None else tuple(range(len(table.schema)))
        width = len(table.physical)
        if table.computed is None:
            exprs: list[Expr] = [InputRef(c, table.physical.types[c]) for c in columns]
        else:
            exprs = [table.computed[c] for c in columns]
        read = sorted({i for e in exprs for i in input_refs(e)})
        push_down = SOURCE_PUSH_DOWN.read(self.config)
        physical = tuple(i for i in read if i < width) if push_down else tuple(range(width))
        if not physical and not any(i >= width for i in read):
            physical = (0,) if width else ()
        metadata = [i for i in read if i >= width]
        layout = {c: i for i, c in enumerate([*physical, *metadata])}
        schema, computed = table.physical, [shift_refs(e, layout) for e in exprs]
        if table.nested_projection and push_down:
            schema, computed = narrow_rows(table.physical, physical, computed)
        plain = all(isinstance(e, InputRef) and e.index == i for i, e in enumerate(computed)) and len(
            computed
        ) == len(layout)
        position = {c: i for i, c in enumerate(columns)}
        watermark = table.watermark
        if watermark is not None:
            watermark = msgspec.structs.replace(
                watermark,
                rowtime=position[watermark.rowtime] if watermark.rowtime is not None else None,
                expr=shift_refs(watermark.expr, position) if watermark.expr is not None else None,
                # A bounded split comes to its end: to call it idle meanwhile gains nothing,
                # and would make its rows late whenever the machine pauses for so long.
                idle_timeout_ms=0 if table.bounded else watermark.idle_timeout_ms,
            )
        fingerprint = self.interner.fingerprint(node)
        enumerator = PlannedOperator(
            uid=self._uid(f"enumerator-{fingerprint}"),
            name=f"Enumerator: {table.name}",
            spec=s.EnumeratorSpec(
                connector=table.connector,
                options=table.options,
                schema=schema,
                reader_parallelism=self.parallelism,
            ),
            inputs=[],
            output=ASSIGNMENT_SCHEMA,
            parallelism=1,
            keeps="split positions",
        )
        self.operators.append(enumerator)
        spec = s.SourceSpec(
            connector=table.connector,
            options=table.options,
            schema=schema,
            projection=physical,
            metadata=tuple(table.metadata[i - width].key for i in metadata),
            pushed=dict(node.pushed),
            computed=None if plain else tuple(computed),
            watermark=watermark,
            on_error=table.options.get("on-error", "fail"),  # type: ignore[arg-type]
        )
        return self.add(
            node,
            "source",
            f"Source: {table.name}",
            spec,
            [OperatorInput(enumerator, Broadcast())],
            parallelism=self.parallelism,
            keeps="split positions",
            guarantee=table.guarantee,
        )

    def _window_table(self, node: n.WindowTable) -> PlannedOperator:
        inp = self.visit(node.input)
        name = f"WindowTable({node.window.kind})"
        if node.window.kind != "session":
            return self.add(
                node,
                "window-table",
                name,
                s.WindowTableSpec(window=node.window),
                [inp],
                hashed=inp.source.hashed,
            )
        raise UnsupportedError(
            "a SESSION table function that is not aggregated",
            expected="GROUP BY its PARTITION BY columns, window_start, window_end",
            remedy="aggregate right above TABLE(SESSION(…)), or use the TUMBLE, HOP or CUMULATE function",
        )

    def _window_aggregate(self, node: n.WindowAggregate) -> PlannedOperator:
        inp = self.visit(node.input)
        types = node.input.schema.types
        fields: dict = {
            "window": node.window,
            "aggregates": node.aggregates,
            "window_columns": node.window_columns,
            "windowed_input": node.windowed_input,
            "allowed_lateness_us": node.allowed_lateness_us,
            "retracts": self.analysis.of(node.input).updating,
        }
        kept = _window_words(node.window)
        late = {node.late_tag: node.input.schema} if node.late_tag else {}
        keys = tuple(range(len(node.keys)))
        if self._two_phases(node):
            partial = self._partials(node, (Field("$pane_end", BigIntType(nullable=False)),))
            local = self.add(
                node,
                "local-window-aggregate",
                f"LocalWindowAggregate({node.window.kind})",
                s.WindowAggregateSpec(phase="local", keys=node.keys, late_tag=node.late_tag, **fields),
                [inp],
                output=partial,
                side_outputs=late,
                mode="append",
            )
            source, parallelism = self.keyed(OperatorInput(local), keys)
            spec = s.WindowAggregateSpec(
                phase="global", keys=keys, local_types=tuple(types), **{**fields, "retracts": False}
            )
            op = self.add(
                node, "window-aggregate", f"GlobalWindowAggregate({node.window.kind})", spec, [source],
                parallelism=parallelism, hashed=keys, keeps=kept,
            )  # fmt: skip
            if node.late_tag:
                # The side output comes from the local phase, where the lateness test is.
                for consumer in self._late_consumers(node):
                    self._memo[id(consumer)] = OperatorInput(local, None, node.late_tag)
            return op
        source, parallelism = self.keyed(inp, node.keys)
        spec = s.WindowAggregateSpec(phase="single", keys=node.keys, late_tag=node.late_tag, **fields)
        return self.add(
            node, "window-aggregate", f"WindowAggregate({node.window.kind})", spec, [source],
            parallelism=parallelism, hashed=keys, keeps=kept, side_outputs=late,
        )  # fmt: skip

    def _late_consumers(self, node: n.WindowAggregate) -> list[n.Node]:
        from penstock.plan.rewriting import walk

        return [x for x in walk(self.sinks) if isinstance(x, n.SideOutput) and x.input is node]

    def _two_phases(self, node: n.WindowAggregate) -> bool:
        """A local phase pays when rows would cross an exchange and can be summed up first."""
        if node.window.time is None or node.windowed_input or node.allowed_lateness_us:
            return False
        if node.window.kind not in ("tumble", "hop", "cumulate") or self.parallelism == 1:
            return False
        if self.analysis.of(node.input).updating:
            return False
        return self._splits(node)

    def _aggregate(self, node: n.Aggregate) -> PlannedOperator:
        inp = self.visit(node.input)
        known = self.analysis.of(node.input)
        common: dict = {
            "aggregates": node.aggregates,
            "retracts": known.updating,
            "emit_before": self.modes.before(node),
            "bounded_final": self.analysis.final,
            "ttl_ms": self.ttl_ms,
        }
        keys = tuple(range(len(node.keys)))
        facts: dict = {"hashed": keys or None, "keeps": "one row per key" + self._ttl_words()}
        name = "GroupAggregate" if node.aggregates else "Distinct"
        if self.parallelism > 1 and not known.updating and self._splits(node):
            local = self.add(
                node, "local-group-aggregate", f"Local{name}",
                s.GroupAggregateSpec(phase="local", keys=node.keys, **common), [inp],
                output=self._partials(node, ()), mode="append",
            )  # fmt: skip
            source, parallelism = self.keyed(OperatorInput(local), keys)
            types = tuple(node.input.schema.types)
            spec = s.GroupAggregateSpec(phase="global", keys=keys, local_types=types, **common)
            return self.add(
                node, "group-aggregate", f"Global{name}", spec, [source], parallelism=parallelism, **facts
            )
        source, parallelism = self.keyed(inp, node.keys)
        spec = s.GroupAggregateSpec(keys=node.keys, **common)
        return self.add(node, "group-aggregate", name, spec, [source], parallelism=parallelism, **facts)

    def _splits(self, node: n.Aggregate | n.WindowAggregate) -> bool:
        """Whether every aggregate has partial accumulators."""
        types = node.input.schema.types
        return all(accumulator_types(c, [types[a] for a in c.args]) is not None for c in node.aggregates)

    def _partials(self, node: n.Aggregate | n.WindowAggregate, between: tuple[Field, ...]) -> Schema:
        """What a local phase sends: keys, ``between``, the accumulators' columns."""
        types = node.input.schema.types
        cells = [*(node.input.schema.fields[k] for k in node.keys), *between]
        for i, call in enumerate(node.aggregates):
            parts = accumulator_types(call, [types[a] for a in call.args])
            assert parts is not None
            cells += [Field(f"$a{i}_{j}", part) for j, part in enumerate(parts)]
        taken: set[str] = set()
        return Schema(tuple(Field(_free(f.name, taken), f.type) for f in cells))

    def _ttl_words(self) -> str:
        return f" for {self.ttl_ms} ms after its last change" if self.ttl_ms else ", for ever"

    def _join(self, node: n.Join) -> PlannedOperator:
        beaten = rows_of_maximum(node, self.analysis)
        if beaten is None:
            left, right = self.visit(node.left), self.visit(node.right)
        else:
            left, right = self._top_rows(node, beaten)
        if node.window is not None:
            return self._window_join(node, left, right)
        known = (self.analysis.of(node.left), self.analysis.of(node.right))
        if node.interval is None:
            self._check_unbounded(node, known)
        first, parallelism = self.keyed(left, node.left_keys)
        second, _ = self.keyed(right, node.right_keys)
        spec = s.JoinSpec(
            kind=node.kind,
            left_keys=node.left_keys,
            right_keys=node.right_keys,
            condition=node.condition,
            interval=node.interval,
            null_safe=node.null_safe,
            left_unique=smallest_key(known[0].unique),
            right_unique=smallest_key(known[1].unique),
            ttl_ms=0 if node.interval else self.ttl_ms,
        )
        hashed = node.left_keys if node.left_keys and node.kind in ("inner", "left", "semi", "anti") else None
        if node.interval:
            low, high = node.interval[2], node.interval[3]
            keeps = f"rows of both sides while right.time BETWEEN left.time + {low} µs AND left.time + {high} µs can match"
            return self.add(
                node, "interval-join", f"IntervalJoin({node.kind})", spec, [first, second],
                parallelism=parallelism, hashed=hashed, keeps=keeps,
            )  # fmt: skip
        return self.add(
            node, "join", f"Join({node.kind})", spec, [first, second], parallelism=parallelism, hashed=hashed,
            keeps="all rows of both sides" + self._ttl_words(),
        )  # fmt: skip

    def _top_rows(self, node: n.Join, spec: s.WindowMaximumSpec) -> tuple[OperatorInput, OperatorInput]:
        """Both inputs of a join with a maximum, without rows that are beaten already."""
        rows = self.visit(node.left)
        top = self.add(node.left, "window-maximum", "WindowMaximum", spec, [rows], hashed=rows.source.hashed)
        # Others that read the same rows need them all.
        everything = self._memo[id(node.left)]
        self._memo[id(node.left)] = OperatorInput(top)
        right = self.visit(node.right)
        self._memo[id(node.left)] = everything
        return OperatorInput(top), right

    def _check_unbounded(self, node: n.Join, known: tuple) -> None:
        if all(p.bounded for p in known) or self.ttl_ms:
            return
        if JOIN_UNBOUNDED_STATE.read(self.config) == "allow":
            return
        sides = [word for word, p in zip(("left", "right"), known, strict=True) if not p.bounded]
        raise UnsupportedError(
            "this join keeps every row for ever: it has no window, no time bound and no TTL",
            expected="a time bound on both event-time columns (interval join), equal windows, or a state TTL",
            got=f"a regular {node.kind} join with unbounded input on the {' and '.join(sides)} side",
            remedy="SET 'table.exec.state.ttl' = '1 d', add e.g. r.ts BETWEEN l.ts - INTERVAL '1' HOUR AND l.ts, "
            "or SET 'table.exec.join.unbounded-state' = 'allow'",
        )

    def _window_join(self, node: n.Join, left: OperatorInput, right: OperatorInput) -> PlannedOperator:
        assert node.window is not None
        # Without a key of its own the join spreads over the subtasks by window.
        left_keys = node.left_keys or (node.window[0][1],)
        right_keys = node.right_keys or (node.window[1][1],)
        first, parallelism = self.keyed(left, left_keys)
        second, _ = self.keyed(right, right_keys)
        spec = s.WindowJoinSpec(
            kind=node.kind,
            left_keys=left_keys,
            right_keys=right_keys,
            left_window=node.window[0],
            right_window=node.window[1],
            condition=node.condition,
        )
        return self.add(
            node, "window-join", f"WindowJoin({node.kind})", spec, [first, second], parallelism=parallelism,
            keeps="rows of both sides until their window ends",
        )  # fmt: skip

    def _temporal_join(self, node: n.TemporalJoin) -> PlannedOperator:
        left = self.visit(node.left)
        if not node.left_keys:
            raise UnsupportedError(
                "a temporal join without an equality", expected="ON l.key = r.key", remedy="add the key to ON"
            )
        if node.lookup:
            return self._lookup(node, left)
        right = self.visit(node.right)
        assert node.left_time is not None
        assert node.right_time is not None
        first, parallelism = self.keyed(left, node.left_keys)
        second, _ = self.keyed(right, node.right_keys)
        spec = s.TemporalJoinSpec(
            kind=node.kind, left_keys=node.left_keys, right_keys=node.right_keys, left_time=node.left_time,
            right_time=node.right_time, condition=node.condition,
        )  # fmt: skip
        return self.add(
            node, "temporal-join", f"TemporalJoin({node.kind})", spec, [first, second], parallelism=parallelism,
            hashed=node.left_keys, keeps="left rows until the watermark, right versions until superseded",
        )  # fmt: skip

    def _lookup(self, node: n.TemporalJoin, left: OperatorInput) -> PlannedOperator:
        right = node.right
        if not isinstance(right, n.Scan) or right.table.computed is not None:
            raise UnsupportedError(
                "a lookup join with something other than a plain table",
                expected="JOIN t FOR SYSTEM_TIME AS OF with a table without computed columns",
            )
        columns = right.projection if right.projection is not None else tuple(range(len(right.table.schema)))
        spec = s.LookupJoinSpec(
            kind=node.kind, connector=right.table.connector, options=right.table.options,
            schema=right.table.physical, left_keys=node.left_keys,
            right_keys=tuple(columns[k] for k in node.right_keys), projection=columns, condition=node.condition,
        )  # fmt: skip
        return self.add(node, "lookup-join", f"LookupJoin({right.table.name})", spec, [left], keeps="a cache")

    def _union(self, node: n.Union_) -> PlannedOperator:
        inputs = [self.visit(i) for i in node.inputs]
        parallelism = max(i.source.parallelism for i in inputs)
        hashes = {i.source.hashed if i.tag is None else None for i in inputs}
        hashed = (
            hashes.pop()
            if len(hashes) == 1 and all(i.source.parallelism == parallelism for i in inputs)
            else None
        )
        return self.add(
            node, "union", "Union", s.UnionSpec(), [list(inputs)], parallelism=parallelism, hashed=hashed
        )

    def _set_operation(self, node: n.SetOperation) -> PlannedOperator:
        keys = tuple(range(len(node.schema)))
        left, parallelism = self.keyed(self.visit(node.left), keys)
        right, _ = self.keyed(self.visit(node.right), keys)
        spec = s.SetOperationSpec(kind=node.kind, all=node.all)
        return self.add(
            node, "set-operation", node.kind.capitalize(), spec, [left, right], parallelism=parallelism,
            hashed=keys, keeps="counts of every distinct row, for ever",
        )  # fmt: skip

    def _sort(self, node: n.Sort) -> PlannedOperator:
        inp = self.visit(node.input)
        known = self.analysis.of(node.input)
        if self.analysis.final:
            spec: s.OperatorSpec = s.SortSpec(order=node.order, offset=node.offset, limit=node.limit)
            return self.add(
                node, "sort", "Sort", spec, [self.single(inp)], parallelism=1, keeps="all rows until the end"
            )
        first = node.order[0]
        if first.index in known.rowtimes and not first.descending and node.limit is None and not node.offset:
            spec = s.TemporalSortSpec(time=first.index, order=node.order[1:])
            return self.add(
                node, "temporal-sort", "TemporalSort", spec, [self.single(inp)], parallelism=1,
                keeps="rows until the watermark",
            )  # fmt: skip
        if node.limit is not None:
            spec = s.TopNSpec(
                partition=(), order=node.order, first=node.offset + 1, last=node.offset + node.limit,
                retracts=known.updating, emit_before=self.modes.before(node),
                unique_keys=smallest_key(known.unique), ttl_ms=self.ttl_ms,
            )  # fmt: skip
            return self.add(
                node,
                "top-n",
                f"TopN({node.limit})",
                spec,
                [self.single(inp)],
                parallelism=1,
                keeps="the first rows",
            )
        raise UnsupportedError(
            "ORDER BY of an unbounded query",
            expected="ORDER BY an ascending event-time column first, or with LIMIT",
            remedy="add LIMIT, or sort what a bounded source gives",
        )

    def _top_n(self, node: n.TopN) -> PlannedOperator:
        known = self.analysis.of(node.input)
        by_window = node.window is not None
        keys = tuple(k for k in node.partition if not by_window or k not in node.window)  # type: ignore[operator]
        spread = keys or ((node.window[1],) if by_window else ())  # type: ignore[index]
        source, parallelism = self.keyed(self.visit(node.input), spread)
        order = node.order
        if self._deduplicates(node, known):
            event = order[0].index in known.rowtimes
            dedup = s.DeduplicateSpec(
                keys=keys, keep="last" if order[0].descending else "first", time=order[0].index if event else None,
                emit_before=self.modes.before(node), window=node.window, ttl_ms=0 if by_window else self.ttl_ms,
            )  # fmt: skip
            return self.add(
                node, "deduplicate", f"Deduplicate({dedup.keep})", dedup, [source], parallelism=parallelism,
                hashed=spread or None,
                keeps="one row per key" + (" until its window ends" if by_window else self._ttl_words()),
            )  # fmt: skip
        spec = s.TopNSpec(
            partition=keys, order=order, first=node.first, last=node.last, rank=node.rank,
            rank_column=node.rank_column, retracts=known.updating, emit_before=self.modes.before(node),
            unique_keys=smallest_key(known.unique), window=node.window, ttl_ms=0 if by_window else self.ttl_ms,
            fixed_order=len(order) == 1 and _fixed_width(node.input.schema.types[order[0].index]),
        )  # fmt: skip
        return self.add(
            node, "top-n", f"TopN({node.rank} <= {node.last})", spec, [source], parallelism=parallelism,
            hashed=spread or None,
            keeps=f"{node.last} rows per key" + (" until its window ends" if by_window else self._ttl_words()),
        )  # fmt: skip

    def _deduplicates(self, node: n.TopN, known: object) -> bool:
        times = known.rowtimes | known.proctimes  # type: ignore[attr-defined]
        return (
            node.first == node.last == 1
            and node.rank == "row_number"
            and not node.rank_column
            and len(node.order) == 1
            and node.order[0].index in times
            and bool(node.partition)
            and not known.updating  # type: ignore[attr-defined]
        )

    def _over(self, node: n.Over) -> PlannedOperator:
        known = self.analysis.of(node.input)
        if known.updating and not self.analysis.final:
            raise UnsupportedError("OVER on an updating input", expected="an append-only input")
        ranking = [c.function for c in node.aggregates if c.function in ("ROW_NUMBER", "RANK", "DENSE_RANK")]
        if ranking:
            raise UnsupportedError(
                f"{ranking[0]} that is not bounded by a condition",
                expected=f"WHERE rank <= n around {ranking[0]}() OVER (…), one ranking function alone",
                remedy="filter on it in an outer query: SELECT * FROM (SELECT *, ROW_NUMBER() OVER (…) AS r …) "
                "WHERE r <= 10",
            )
        times = known.rowtimes | known.proctimes
        if not self.analysis.final and (not node.order or node.order[0].index not in times):
            raise UnsupportedError(
                "OVER that is not ordered by time over an unbounded input",
                expected="ORDER BY an event-time column in OVER",
                remedy="order by the time attribute, or filter on ROW_NUMBER() <= n for a Top-N",
            )
        source, parallelism = self.keyed(self.visit(node.input), node.partition)
        spec = s.OverSpec(
            partition=node.partition, order=node.order, aggregates=node.aggregates, frame=node.frame,
            preceding=node.preceding, ttl_ms=self.ttl_ms,
        )  # fmt: skip
        return self.add(
            node, "over", "OverAggregate", spec, [source], parallelism=parallelism, hashed=node.partition or None,
            keeps="rows of the frame per key",
        )  # fmt: skip

    def _transform(self, node: n.Transform) -> PlannedOperator:
        inputs = []
        parallelism = node.parallelism or self.parallelism
        for i, child in enumerate(node.inputs):
            wanted: Partitioning | None = node.partitioning[i] if i < len(node.partitioning) else None
            inp = self.visit(child)
            if isinstance(wanted, Hash) and inp.tag is None and inp.source.hashed == wanted.keys:
                wanted = None if inp.source.parallelism == parallelism else wanted
            inputs.append(OperatorInput(inp.source, wanted, inp.tag))
        union = isinstance(node.spec, s.UnionSpec)
        op = self.add(
            node,
            "transform",
            node.name,
            node.spec,
            [inputs] if union else inputs,  # type: ignore[list-item]
            parallelism=parallelism
            if node.inputs or not isinstance(node.spec, s.CollectionSourceSpec)
            else 1,
            uid=node.uid,
            side_outputs=dict(node.side_outputs),
        )
        op.chain = node.chain
        if node.slot_sharing_group:
            op.slot_sharing_group = node.slot_sharing_group
        elif inputs:
            op.slot_sharing_group = inputs[0].source.slot_sharing_group
        return op

    def _sink(self, node: n.Sink) -> None:
        inp = self.visit(node.input)
        how = self.modes.sinks[id(node)]
        table = node.table
        parallelism = 1 if table.connector == "collect" else node.parallelism or inp.source.parallelism
        if how.materialize:
            source, width = self.keyed(inp, how.keys)
            made = self.add(
                node, "materialize", "SinkMaterializer", s.MaterializeSpec(keys=how.keys, ttl_ms=self.ttl_ms),
                [source], output=node.input.schema, parallelism=width, hashed=how.keys,
                keeps="the rows behind each key" + self._ttl_words(), mode="upsert",
            )  # fmt: skip
            inp = OperatorInput(made)
            parallelism = 1 if table.connector == "collect" else node.parallelism or width
        if parallelism == 1:
            inp = self.single(inp)
        elif how.mode != "append" and how.keys and inp.source.parallelism != parallelism:
            inp = OperatorInput(inp.source, Hash(how.keys), inp.tag)
        spec = s.SinkSpec(
            connector=table.connector,
            options=table.options,
            schema=table.schema,
            mode=how.mode,
            keys=how.keys,
            on_error=table.options.get("on-error", "fail"),  # type: ignore[arg-type]
        )
        self.add(
            node, "sink", f"Sink: {node.name or table.name}", spec, [inp], parallelism=parallelism, uid=node.uid,
            guarantee=table.guarantee, mode=how.mode,
        )  # fmt: skip


def _fixed_width(type_: LogicalType) -> bool:
    """Whether its columns are plain arrays (see ``types.column``), RAW apart."""
    if isinstance(type_, DecimalType):
        return type_.precision <= MAX_UNSCALED_INT64_PRECISION
    return isinstance(type_, (*INTEGERS, *TIMESTAMPS, BooleanType, DateType, DoubleType, FloatType, TimeType))


def _moved_keys(keys: tuple[int, ...], projections: tuple[Expr, ...]) -> tuple[int, ...] | None:
    at = {e.index: i for i, e in reversed(list(enumerate(projections))) if isinstance(e, InputRef)}
    return tuple(at[k] for k in keys) if all(k in at for k in keys) else None


def _free(name: str, taken: set[str]) -> str:
    candidate, i = name, 0
    while candidate in taken:
        candidate, i = f"{name}_{i}", i + 1
    taken.add(candidate)
    return candidate


def _window_words(window: s.WindowSpec) -> str:
    if window.kind == "session":
        return f"one row per key and open session, until {window.gap_us // 1000} ms without rows"
    panes = f"pane of {window.slide_us // 1000} ms" if window.kind == "hop" else "window"
    return f"one row per key and {panes}, until the watermark passes its window ({window.size_us // 1000} ms)"


# -- nested projection ----------------------------------------------------------------------------


def narrow_rows(physical: Schema, columns: tuple[int, ...], exprs: list[Expr]) -> tuple[Schema, list[Expr]]:
    """ROW columns of which only fields are read, with just those fields.

    ``exprs`` are over the columns as read (position in ``columns``).
    """
    used: dict[int, set[int] | None] = {}

    def collect(expr: Expr) -> None:
        if isinstance(expr, FieldAccess) and isinstance(expr.arg, InputRef):
            fields = used.setdefault(expr.arg.index, set())
            if fields is not None:
                fields.add(expr.index)
            return
        if isinstance(expr, InputRef):
            used[expr.index] = None
        for child in children(expr):
            collect(child)

    for expr in exprs:
        collect(expr)
    new_types: dict[int, RowType] = {}
    moved: dict[int, dict[int, int]] = {}
    for position, fields in used.items():
        if fields is None or position >= len(columns):
            continue
        type_ = physical.types[columns[position]]
        if not isinstance(type_, RowType) or len(fields) == len(type_.fields):
            continue
        kept = sorted(fields)
        moved[position] = {old: i for i, old in enumerate(kept)}
        new_types[position] = RowType(tuple(type_.fields[i] for i in kept), type_.nullable)
    if not new_types:
        return physical, exprs

    def rewrite(expr: Expr) -> Expr:
        if isinstance(expr, FieldAccess) and isinstance(expr.arg, InputRef) and expr.arg.index in moved:
            at = expr.arg.index
            return FieldAccess(InputRef(at, new_types[at]), moved[at][expr.index], expr.type)
        if isinstance(expr, FieldAccess):
            return msgspec.structs.replace(expr, arg=rewrite(expr.arg))
        if children(expr):
            return msgspec.structs.replace(expr, args=tuple(rewrite(c) for c in children(expr)))
        return expr

    by_column = {columns[p]: type_ for p, type_ in new_types.items()}
    fields_ = tuple(Field(f.name, by_column.get(i, f.type)) for i, f in enumerate(physical.fields))
    return Schema(fields_), [rewrite(e) for e in exprs]


__all__ = ["Translator", "is_bounded_final", "narrow_rows"]
