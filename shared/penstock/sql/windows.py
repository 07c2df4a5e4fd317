"""Windows: table functions TUMBLE, HOP, CUMULATE, SESSION and the older group windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import Expr, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import WindowSpec
from penstock.plan import nodes as n
from penstock.sql.errors import did_you_mean
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.reading import function_name
from penstock.sql.scope import Relation, unique_schema
from penstock.sql.syntax import Descriptor, TableArgument, TableFunction
from penstock.time_zones import is_utc
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder

GROUP_WINDOWS = {"TUMBLE", "HOP", "SESSION"}
#: Auxiliary function's suffix → window column.
AUXILIARY = {"START": "start", "END": "end", "ROWTIME": "time", "PROCTIME": "time"}
_DURATIONS = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
    "SESSION": ("GAP",),
}

WINDOW_TIME = t.TimestampType(3, nullable=False)


def time_type(spec: WindowSpec) -> t.LogicalType:
    """The type of the column window_time."""
    return t.TimestampLtzType(3, nullable=False) if spec.ltz or spec.time is None else WINDOW_TIME


def bind_window_table(ctx: QueryBinder, node: TableFunction) -> Relation:
    """``TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL …))``: the rows with
    window_start, window_end, window_time."""
    name = node.args["name"].upper()
    named, positional = _arguments(node)
    for word, given in named.items():
        if word not in (known := ("DATA", "TIMECOL", *_DURATIONS[name], "OFFSET")):
            raise ctx.source.error(
                f"{name} has no argument {word}",
                given,
                expected="one of " + ", ".join(known),
                got=word,
                remedy=did_you_mean(word, known),
            )
    table = named.get("DATA") or (positional.pop(0) if positional else None)
    if not isinstance(table, TableArgument):
        raise ctx.source.error(
            f"{name} needs a table first",
            table or node,
            expected=f"{name}(TABLE t, DESCRIPTOR(time column), …)",
        )
    descriptor = named.get("TIMECOL") or (positional.pop(0) if positional else None)
    if not isinstance(descriptor, Descriptor):
        raise ctx.source.error(
            f"{name} needs DESCRIPTOR(time column) second",
            descriptor or node,
            expected="DESCRIPTOR(time column)",
        )
    relation = _argument_table(ctx, table)
    time = _time_column(ctx, relation, descriptor)
    durations = _named_durations(ctx, node, name, named, positional)
    spec = make_window(ctx, node, name, time, relation, durations)
    keys = _partition(ctx, relation, table)
    zone = local_zone(ctx, relation, time)
    fields = [
        (f.name, relation.ref(c)) for f, c in zip(relation.node.schema.fields, relation.columns, strict=True)
    ]
    if zone is not None:
        relation = in_local_time(relation, time, zone)
    if keys and name != "SESSION":
        raise ctx.source.error(
            f"{name} takes no PARTITION BY", table, expected="PARTITION BY with SESSION only"
        )
    schema = unique_schema(
        [
            *((f.name, f.type) for f in relation.node.schema.fields),
            ("window_start", WINDOW_TIME),
            ("window_end", WINDOW_TIME),
            ("window_time", time_type(spec)),
        ]
    )
    schema = t.Schema(schema.fields, schema.names[-1])
    made = Relation.of(n.WindowTable(input=relation.node, window=spec, keys=keys, schema=schema))
    if zone is None:
        return made
    first = len(relation.node.schema)
    start, end, at = (InputRef(first + i, schema.types[first + i]) for i in range(3))
    sides = [("window_start", start), ("window_end", end), ("window_time", as_instant(ctx, at))]
    return ctx.project(made, [*fields, *sides])


def local_zone(ctx: QueryBinder, relation: Relation, time: int) -> str | None:
    """The session's time zone if windows over this time column follow the zone's clock; None otherwise."""
    if time in ctx.analysis.of(relation.node).proctimes or is_utc(ctx.zone):
        return None
    return ctx.zone if isinstance(relation.node.schema.types[time], t.TimestampLtzType) else None


def in_local_time(relation: Relation, time: int, zone: str) -> Relation:
    """The relation with the local time of column ``time`` as a hidden last column."""
    fields = relation.node.schema.fields
    nullable = fields[time].type.nullable
    schema = unique_schema([*((f.name, f.type) for f in fields), ("$local", t.TimestampType(3, nullable))])
    schema = t.Schema(schema.fields, schema.names[-1])
    return relation.over(n.LocalTime(input=relation.node, time=time, zone=zone, schema=schema))


def as_instant(ctx: QueryBinder, local: Expr) -> Expr:
    """A local window_time as the TIMESTAMP_LTZ that the user sees."""
    return make_call("CAST", [local], type=t.TimestampLtzType(3, nullable=False), zone=ctx.zone)


def _arguments(node: TableFunction) -> tuple[dict[str, exp.Expression], list[exp.Expression]]:
    named: dict[str, exp.Expression] = {}
    positional: list[exp.Expression] = []
    for argument in node.expressions:
        if isinstance(argument, exp.Kwarg):
            named[argument.this.name.upper()] = argument.expression
        else:
            positional.append(argument)
    return named, positional


def _argument_table(ctx: QueryBinder, argument: TableArgument) -> Relation:
    relation = (
        ctx.table_item(argument.this) if isinstance(argument.this, exp.Table) else ctx.query(argument.this)
    )
    visible = relation.visible
    if [c.index for c in visible] == list(range(len(relation.node.schema))):
        return relation
    return ctx.project(relation, [(c.name, relation.ref(c)) for c in visible])


def _time_column(ctx: QueryBinder, relation: Relation, descriptor: Descriptor) -> int:
    if len(descriptor.expressions) != 1:
        raise ctx.source.error("DESCRIPTOR names one time column", descriptor)
    identifier = descriptor.expressions[0]
    column, _ = relation.resolve([identifier.name], identifier, ctx.source)
    check_time_attribute(ctx, relation, column.index, column.name, identifier)
    return column.index


def check_time_attribute(
    ctx: QueryBinder, relation: Relation, index: int, name: str, node: exp.Expression
) -> None:
    """Raise SqlError unless column ``index`` is a time attribute."""
    known = ctx.analysis.of(relation.node)
    if index in known.rowtimes or index in known.proctimes:
        return
    schema = relation.node.schema
    times = [schema.names[i] for i in sorted(known.rowtimes | known.proctimes)]
    raise ctx.source.error(
        f"'{name}' is not a time attribute here",
        node,
        expected="a column with a WATERMARK, a window_time or PROCTIME()"
        + (": " + ", ".join(times) if times else ""),
        got=f"{name} {schema.types[index]}",
        remedy="declare WATERMARK FOR it in CREATE TABLE; a join, an aggregate or a computation on it "
        "makes an ordinary column of a time attribute",
    )


def _named_durations(
    ctx: QueryBinder,
    node: TableFunction,
    name: str,
    named: dict[str, exp.Expression],
    positional: list[exp.Expression],
) -> list[exp.Expression]:
    wanted = _DURATIONS[name]
    out = []
    for parameter in wanted:
        given = named.get(parameter) or (positional.pop(0) if positional else None)
        if given is None:
            raise ctx.source.error(
                f"{name} needs {' and '.join(wanted)}",
                node,
                expected=f"{name}(TABLE t, DESCRIPTOR(c), {', '.join(f'<{p.lower()} INTERVAL>' for p in wanted)})",
            )
        out.append(given)
    offset = named.get("OFFSET") or (positional.pop(0) if positional else None)
    if offset is not None:
        out.append(offset)
    if positional:
        raise ctx.source.error(f"{name} has too many arguments", positional[0])
    return out


def _partition(ctx: QueryBinder, relation: Relation, table: TableArgument) -> tuple[int, ...]:
    keys = []
    for part in table.args.get("partition_by") or []:
        bound = ctx.expressions(relation).bind(part)
        if not isinstance(bound, InputRef):
            raise ctx.source.error("PARTITION BY takes columns here", part, expected="a column")
        keys.append(bound.index)
    return tuple(keys)


def duration_us(ctx: QueryBinder, node: exp.Expression) -> int:
    """The µs of a constant interval. Raises SqlError for another expression."""
    bound = ExpressionBinder(Relation.of(n.Values(schema=t.Schema(()), data="")), ctx.source).bind(node)
    if not isinstance(bound, Literal) or not isinstance(bound.type, t.DayTimeIntervalType):
        raise ctx.source.error(
            "a window's size is a constant interval",
            node,
            expected="INTERVAL '10' SECOND",
            got=str(bound.type),
        )
    return int(bound.value)


def make_window(
    ctx: QueryBinder,
    node: exp.Expression,
    name: str,
    time: int,
    relation: Relation,
    durations: list[exp.Expression],
) -> WindowSpec:
    """The specification of a window table function over the time column ``time``."""
    known = ctx.analysis.of(relation.node)
    processing = time in known.proctimes
    ltz = isinstance(relation.node.schema.types[time], t.TimestampLtzType)
    if processing and not is_utc(ctx.zone):
        raise ctx.source.unsupported(
            f"windows over processing time in time zone {ctx.zone}",
            node,
            expected="an event-time column, or the time zone UTC",
            remedy="SET 'table.local-time-zone' = 'UTC'",
        )
    values = [duration_us(ctx, d) for d in durations]
    for value, duration in zip(values[: len(_DURATIONS[name])], durations, strict=False):
        if value <= 0:
            raise ctx.source.error("a window's size must be positive", duration, expected="more than 0 ms")
        if value % 1000:
            raise ctx.source.error("a window's size is a whole number of milliseconds", duration)
    at = None if processing else time
    if local_zone(ctx, relation, time) is not None:
        at = len(relation.node.schema)  # the column that ``in_local_time`` adds
    ltz = ltz and not processing and at == time
    match name:
        case "TUMBLE":
            offset = values[1] if len(values) > 1 else 0
            return WindowSpec(
                kind="tumble", time=at, size_us=values[0], slide_us=values[0], offset_us=offset, ltz=ltz
            )
        case "SESSION":
            return WindowSpec(kind="session", time=at, gap_us=values[0], ltz=ltz)
    step, size = values[0], values[1]
    offset = values[2] if len(values) > 2 else 0
    if name == "CUMULATE":
        if size % step:
            raise ctx.source.error(
                "CUMULATE's size must be a multiple of its step", durations[1], got=f"{size} µs and {step} µs"
            )
        return WindowSpec(kind="cumulate", time=at, size_us=size, slide_us=step, offset_us=offset, ltz=ltz)
    return WindowSpec(kind="hop", time=at, size_us=size, slide_us=step, offset_us=offset, ltz=ltz)


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A window ``GROUP BY TUMBLE(ts, INTERVAL …)``. Its auxiliary functions must repeat its arguments."""

    name: str
    spec: WindowSpec
    time: int
    durations: tuple[int, ...]
    #: The time zone of a window on a local clock; None for other windows.
    zone: str | None = None

    def column_of(self, ctx: QueryBinder, node: exp.Expression, binder: ExpressionBinder) -> str | None:
        """The window column that an auxiliary function such as TUMBLE_START means: "start", "end" or "time".
        TUMBLE_PROCTIME of an event-time window means "clock". None for another node. Raises SqlError if the
        arguments are not the window's."""
        if not isinstance(node, exp.Anonymous):
            return None
        prefix, _, suffix = function_name(node).upper().rpartition("_")
        if prefix not in GROUP_WINDOWS or suffix not in AUXILIARY:
            return None
        same = (
            prefix == self.name
            and node.expressions
            and binder.bind(node.expressions[0])
            == InputRef(self.time, binder.relation.node.schema.types[self.time])
        )
        if not same or tuple(duration_us(ctx, d) for d in node.expressions[1:]) != self.durations:
            raise ctx.source.error(
                f"{function_name(node)} does not repeat the window of GROUP BY",
                node,
                expected=f"the arguments of {self.name} in GROUP BY",
            )
        if suffix == "ROWTIME" and self.spec.time is None:
            raise ctx.source.error(
                f"{function_name(node)} of a window over processing time",
                node,
                expected=f"{self.name}_PROCTIME, or a window over an event-time column",
                got=function_name(node),
            )
        return "clock" if suffix == "PROCTIME" and self.spec.time is not None else AUXILIARY[suffix]


def group_window(ctx: QueryBinder, node: exp.Expression, relation: Relation) -> GroupWindow | None:
    """The group window that a GROUP BY item calls; None for another item."""
    if not isinstance(node, exp.Anonymous) or function_name(node).upper() not in GROUP_WINDOWS:
        return None
    name = function_name(node).upper()
    wanted = 1 + len(_DURATIONS[name])
    if not wanted <= len(node.expressions) <= wanted:
        raise ctx.source.error(
            f"{name} in GROUP BY takes {wanted} arguments",
            node,
            expected=f"{name}(time column, INTERVAL …)",
            got=f"{len(node.expressions)} arguments",
        )
    bound = ctx.expressions(relation).bind(node.expressions[0])
    if not isinstance(bound, InputRef):
        raise ctx.source.error(f"{name} needs a time column", node.expressions[0], got=str(bound.type))
    field = relation.node.schema.names[bound.index]
    check_time_attribute(ctx, relation, bound.index, field, node.expressions[0])
    durations = list(node.expressions[1:])
    spec = make_window(ctx, node, name, bound.index, relation, durations)
    zone = local_zone(ctx, relation, bound.index)
    return GroupWindow(name, spec, bound.index, tuple(duration_us(ctx, d) for d in durations), zone)


def window_types(spec: WindowSpec) -> dict[str, t.LogicalType]:
    """The types of the window columns "start", "end" and "time"."""
    return {"start": WINDOW_TIME, "end": WINDOW_TIME, "time": time_type(spec)}
