"""``WindowedStream``: built-in aggregates run on columns, Python functions run for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api import aggregates as agg
from penstock.api.common import duration_us
from penstock.api.datastream import DataStream
from penstock.api.function_slots import check_function
from penstock.api.process_steps import output_schema, policy
from penstock.api.selectors import column_index
from penstock.api.transformations import Compiler, Transformation, plain, transform
from penstock.api.typeinfo import annotated_type, type_of
from penstock.api.window_results import WindowResult, with_time_column
from penstock.errors import SpecError, UnsupportedError
from penstock.functions.expr import AggregateCall
from penstock.jobgraph import Hash
from penstock.jobgraph.specs import KeyedWindowSpec, RecordTimeSpec
from penstock.operators.evictors import Evictor
from penstock.operators.window_functions import (
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    WindowCall,
)
from penstock.plan import nodes as n
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.api.keyed import KeyedStream
    from penstock.api.window_assigner import WindowAssigner
    from penstock.operators.output_tag import OutputTag

_WINDOW_TIME = t.TimestampLtzType(3, nullable=False)


class WindowedStream:
    """A keyed stream in windows. Its settings are kept in this object; a function (``aggregate``, ``reduce``,
    ``process`` …) makes a stream of it.

    ``keyed``: the keyed stream; ``assigner``: its windows.
    """

    def __init__(self, keyed: KeyedStream, assigner: WindowAssigner) -> None:
        self._keyed = keyed
        self._assigner = assigner
        self._trigger: Trigger | None = None
        self._evictor: Evictor | None = None
        self._lateness_us = 0
        self._late: OutputTag | None = None

    def allowed_lateness(self, time_ms: Any) -> WindowedStream:
        """Keep a window for ``time_ms`` (ms or a ``Time``) after its end. A late record that belongs to it makes it fire again."""
        self._lateness_us = duration_us(time_ms, "allowed_lateness")
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> WindowedStream:
        """Send records whose windows have all closed to ``output_tag``; ``get_side_output`` of the result reads them.

        Raises:
            SpecError: The tag's type is not that of the records.
        """
        if output_tag.schema.types != self._keyed.schema.types:
            raise SpecError(
                f"the tag '{output_tag.tag_id}' of late records has another type",
                expected=f"OutputTag({output_tag.tag_id!r}, {type_of(self._keyed.schema)})",
                got=str(output_tag.type),
            )
        self._late = output_tag
        return self

    def trigger(self, trigger: Trigger) -> WindowedStream:
        """Let ``trigger`` say when windows give results, instead of at their end.

        Raises:
            SpecError: It is no trigger, or it cannot merge (``can_merge``) and the windows are sessions.
        """
        if not isinstance(trigger, Trigger):
            raise SpecError(
                "not a trigger", expected="CountTrigger.of(n), or a Trigger of your own", got=repr(trigger)
            )
        if self._assigner.merging and not trigger.can_merge():
            raise SpecError(
                "A merging window assigner cannot be used with a trigger that does not support merging.",
                expected="a trigger with can_merge() = True and on_merge(window, ctx)",
                got=f"{type(trigger).__name__} on session windows",
                remedy="in on_merge bring the trigger's state together with ctx.merge_partitioned_state(descriptor) "
                "and set the merged window's timers",
            )
        self._trigger = None if self._of_itself(trigger) else trigger
        return self

    def _of_itself(self, trigger: Trigger) -> bool:
        """Whether the operator does without a trigger what ``trigger`` does."""
        default = EventTimeTrigger if self._assigner.event_time else ProcessingTimeTrigger
        return self._assigner.spec.kind not in ("global", "count") and type(trigger) is default

    def evictor(self, evictor: Evictor) -> WindowedStream:
        """Let ``evictor`` drop elements before or after the window's function. All elements are kept until then.

        Raises:
            SpecError: It is no evictor.
        """
        if not isinstance(evictor, Evictor):
            raise SpecError(
                "not an evictor",
                expected="CountEvictor.of(n), or an Evictor of your own",
                got=repr(evictor),
            )
        self._evictor = evictor
        return self

    # -- built-in aggregates, on columns -------------------------------------------------------

    def count(self) -> DataStream:
        """The number of records of each window."""
        return self.aggregate(agg.count())

    def sum(self, column: str | int = 0) -> DataStream:
        """The sum of ``column`` in each window."""
        return self.aggregate(agg.sum(column))

    def min(self, column: str | int = 0) -> DataStream:
        """The smallest value of ``column`` in each window."""
        return self.aggregate(agg.min(column))

    def max(self, column: str | int = 0) -> DataStream:
        """The greatest value of ``column`` in each window."""
        return self.aggregate(agg.max(column))

    def aggregate(
        self,
        *aggregates: Any,
        window_function: Any = None,
        accumulator_type: t.LogicalType | None = None,
        output_type: t.LogicalType | None = None,
        on_error: str = "fail",
    ) -> DataStream:
        """Aggregates of each window.

        Args:
            aggregates: Built-in ones (``agg.count("n"), agg.avg("delay")``, or ``"count", ("max", "delay")``): the
                results are rows (keys, aggregates, window_start, window_end). Or one ``AggregateFunction``, which may
                be followed by a ``ProcessWindowFunction`` and by the types of the accumulator and of the result.
            window_function: The ``ProcessWindowFunction`` that gets the aggregate's result.
            accumulator_type: Type of the accumulator. None: the annotation of ``create_accumulator``; without one,
                the accumulator is pickled.
            output_type: Type of the result, as in ``DataStream.map``.
            on_error: As in ``DataStream.map``.

        Raises:
            SpecError: ``aggregates`` are none of these, or two output columns have one name.
            UnsupportedError: Built-in aggregates with a trigger, or by processing time.
        """
        given = [a for a in aggregates if not isinstance(a, t.LOGICAL_TYPES)]
        types = [a for a in aggregates if isinstance(a, t.LOGICAL_TYPES)]  # by position, as in PyFlink
        if types:
            accumulator_type, output_type = (*types, output_type)[:2]
        built_in = [agg.by_name(a) for a in given]
        if built_in and all(b is not None for b in built_in):
            return self._columnar([b for b in built_in if b is not None])
        if len(given) == 2 and window_function is None:
            window_function = given.pop()
        if len(given) != 1:
            raise SpecError(
                "aggregate of a window",
                expected="built-in aggregates, or one AggregateFunction",
                got=", ".join(map(repr, given)) or "nothing",
            )
        function = given[0]
        state = accumulator_type or annotated_type(function, "create_accumulator") or t.RawType()
        if window_function is None:
            schema = output_schema(function, output_type, "get_result")
        else:
            schema = output_schema(window_function, output_type, "process")
        return self._python("aggregate", function, window_function, state, schema, on_error)

    def _columnar(self, built_in: list[agg.BuiltinAggregate]) -> DataStream:
        keyed, late = self._keyed, self._late
        of_functions = {
            "a trigger": self._trigger is not None,
            "an evictor": self._evictor is not None,
            "a gap for each record": self._assigner.gap is not None,
            "an assigner of your own": self._assigner.own,
            "processing time": not self._assigner.event_time,
        }
        if what := next((name for name, found in of_functions.items() if found), None):
            raise UnsupportedError(
                f"built-in aggregates over a window with {what}",
                expected="event-time windows with the default trigger",
                remedy="use an AggregateFunction",
            )
        step, schema = keyed._keyed_step, keyed._keyed_step.schema
        timed = with_time_column(step)
        time_index = len(schema)
        calls, fields = [], [schema.fields[k] for k in keyed._keys]
        for one in built_in:
            call, name = _call(one, keyed.schema)
            calls.append(call)
            fields.append(t.Field(name, call.type))
        names = [f.name for f in fields]
        if len(set(names)) != len(names):
            raise SpecError(
                "two output columns of one name", got=", ".join(names), remedy="name them with .alias(…)"
            )
        ends = [t.Field("window_start", _WINDOW_TIME), t.Field("window_end", _WINDOW_TIME)]
        whole = Schema((*fields, *ends, t.Field("__time", _WINDOW_TIME)))
        window = msgspec.structs.replace(self._assigner.spec, time=time_index, ltz=True)

        def make(inputs: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
            return n.WindowAggregate(
                input=inputs[0],
                window=window,
                keys=keyed._keys,
                aggregates=tuple(calls),
                window_columns=("start", "end", "time"),
                late_tag=None if late is None else late.tag_id,
                allowed_lateness_us=self._lateness_us,
                schema=whole,
            )

        aggregated = plain(make, (timed,), whole, "Window Aggregate")
        spec = RecordTimeSpec(kind="assign", column=len(whole) - 1, drop=True)
        out = transform(lambda s, c: spec, (aggregated,), Schema(whole.fields[:-1]), "Window time")
        return WindowResult(keyed._env, out, aggregated, late, timed, keyed._width)

    # -- Python functions ---------------------------------------------------------------------------

    def reduce(
        self,
        reduce_function: Any,
        window_function: Any = None,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """One record for each window: all its records, combined by ``reduce_function``.

        Args:
            reduce_function: A ``ReduceFunction``, or a callable of two records.
            window_function: A ``ProcessWindowFunction`` that gets the combined record.
            output_type: Type of what ``window_function`` emits, as in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        schema = self._keyed.schema
        out = schema if window_function is None else output_schema(window_function, output_type, "process")
        return self._python("reduce", reduce_function, window_function, type_of(schema), out, on_error)

    def process(
        self,
        process_window_function: Any,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """The records that ``process_window_function`` emits for each window. All records of a window are kept until it fires.

        Args:
            process_window_function: A ``ProcessWindowFunction``.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        out = output_schema(process_window_function, output_type, "process")
        return self._python(
            "process", None, process_window_function, type_of(self._keyed.schema), out, on_error
        )

    def apply(
        self, window_function: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """As ``process``, with a ``WindowFunction``.

        Args:
            window_function: A ``WindowFunction``, or a callable of key, window and records.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        return self.process(_Applied(window_function), output_type, on_error=on_error)

    def _python(
        self,
        kind: str,
        function: Any,
        window_function: Any,
        state: t.LogicalType,
        schema: Schema,
        on_error: str,
    ) -> DataStream:
        keyed = self._keyed
        trigger = self._trigger
        if trigger is None and self._assigner.spec.kind == "count":
            trigger = PurgingTrigger.of(CountTrigger.of(self._assigner.spec.count))
        if trigger is None and self._assigner.own:
            default = self._assigner.get_default_trigger(keyed._env)
            trigger = None if self._of_itself(default) else default
        if self._assigner.spec.kind == "global" and trigger is None:
            raise SpecError(
                "a global window never fires by itself", expected=".trigger(CountTrigger.of(n)) or another"
            )
        on_error = policy(on_error)
        if function is not None:
            check_function(function, kind)
        if window_function is not None:
            check_function(getattr(window_function, "function", window_function), "window")
        if trigger is not None:
            check_function(trigger, "trigger")
        if self._evictor is not None:
            check_function(self._evictor, "evictor")
            state = type_of(keyed.schema)  # every element is kept
        if self._assigner.own:
            check_function(self._assigner, "window assigner")
        own = self._assigner if self._assigner.own else None
        bundle = WindowCall(function, window_function, state, trigger, self._assigner.gap, self._evictor, own)
        late = self._late

        def spec(step: Transformation, compiler: Compiler) -> KeyedWindowSpec:
            return KeyedWindowSpec(
                window=self._assigner.spec,
                keys=keyed._keys,
                function=compiler.function(bundle, "window"),
                kind=kind,  # type: ignore[arg-type]
                allowed_lateness_us=self._lateness_us,
                late_tag=late.tag_id if late is not None and late.tag_id in step.tags else None,
                event_time=self._assigner.event_time,
                record_columns=keyed._width,
                tags=tuple(sorted(step.tags)),
                on_error=on_error,  # type: ignore[arg-type]
            )

        step = transform(
            spec, (keyed._keyed_step,), schema, f"Window {kind}", (Hash(keyed._keys),), has_tags=True
        )
        return DataStream(keyed._env, step)


def _call(one: agg.BuiltinAggregate, schema: Schema) -> tuple[AggregateCall, str]:
    from penstock.functions.aggregates import infer_aggregate

    args: tuple[int, ...] = ()
    column = None
    if one.column is not None:
        index = column_index(schema, one.column, f"aggregate {one.function}")
        args, column = (index,), schema.names[index]
    types = [schema.types[i] for i in args]
    type_ = infer_aggregate(one.function, types, distinct=one.distinct)
    call = AggregateCall(
        function=one.function, args=args, type=type_, distinct=one.distinct, constants=one.constants
    )
    return call, one.output_name(column)


class _Applied:
    """A ``WindowFunction`` as a ``ProcessWindowFunction``."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, context: Any) -> None:
        opener = getattr(self.function, "open", None)
        if opener is not None:
            opener(context)

    def close(self) -> None:
        closer = getattr(self.function, "close", None)
        if closer is not None:
            closer()

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return getattr(self.function, "apply", self.function)(key, context.window(), elements)
