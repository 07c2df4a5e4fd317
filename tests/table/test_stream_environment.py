"""Tables and streams of one program: both ways, with kinds of rows, times, and one job for all."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api import StreamExecutionEnvironment, Types, WatermarkStrategy, execution
from penstock.columnar.python_values import records
from penstock.errors import FunctionError, SpecError, SqlError, UnsupportedError
from penstock.table import (
    ChangelogMode,
    DataTypes,
    Row,
    RowKind,
    Schema,
    StreamTableEnvironment,
    TableEnvironment,
)
from penstock.table.expressions import call, col
from penstock.table.udf import udf
from penstock.testing.harness import run_graph
from penstock.types import Batch, pickling
from penstock.types.logical import RawType

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS = Types.TUPLE([Types.LONG(), Types.STRING()])
EVENTS = Types.ROW_NAMED(["k", "ms"], [Types.STRING(), Types.LONG()])


@pytest.fixture(autouse=True)
def streams_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of streams run in this process, too."""
    monkeypatch.setattr(execution, "submit", _Here)


class _Here:
    def __init__(self, graph: Any, config: Any) -> None:
        self.result = run_graph(graph)

    def rows(self, schema: Any) -> Iterator[Any]:
        found = [
            tuple(
                pickling.loads(v) if isinstance(x, RawType) and v is not None else v
                for x, v in zip(schema.types, row, strict=True)
            )
            for _, row in self.result.changelog
        ]
        yield from records(Batch.of(schema, found)) if found else ()

    def abandon(self) -> None:
        """It has ended."""

    def get_job_execution_result(self) -> None:
        """There is none."""


@pytest.fixture
def program() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def env(program: StreamExecutionEnvironment) -> Any:
    return StreamTableEnvironment.create(program)


def _rows(stream: Any) -> list[Any]:
    return list(stream.execute_and_collect())


def _pairs(program: StreamExecutionEnvironment) -> Any:
    return program.from_collection([(1, "a"), (2, "b"), (3, "a")], PAIRS)


def test_a_stream_with_a_function_becomes_a_table_and_a_stream_again(program: Any, env: Any) -> None:
    tens = _pairs(program).map(lambda r: (r[0] * 10, r[1]), PAIRS)
    env.create_temporary_function("twice", udf(lambda x: 2 * x, result_type=DataTypes.BIGINT()))
    table = env.from_data_stream(tens, col("n"), col("w")).select(
        col("w"), call("twice", col("n")).alias("n")
    )
    back = env.to_data_stream(table)
    found = _rows(back.map(lambda row: f"{row.w}{row['n']}{row[1]}", Types.STRING()))
    assert sorted(found) == ["a2020", "a6060", "b4040"]


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ((), ["f0", "f1"]),
        ((col("f1"),), ["f1"]),
        ((col("f1"), col("f0").alias("n")), ["f1", "n"]),
        ((col("x"),), ["x"]),
        ((col("x"), col("y")), ["x", "y"]),
    ],
)
def test_fields_are_chosen_by_name_or_name_the_columns_in_order(
    program: Any, env: Any, fields: tuple[Any, ...], columns: list[str]
) -> None:
    assert env.from_data_stream(_pairs(program), *fields).get_schema().get_column_names() == columns


def test_bare_values_are_a_column_f0_and_a_column_value_gives_rows(program: Any, env: Any) -> None:
    table = env.from_data_stream(program.from_collection([1, 2], Types.LONG()))
    assert table.get_schema().get_column_names() == ["f0"]
    assert _rows(env.to_data_stream(table.select(col("f0").alias("value")))) == [(1,), (2,)]


def test_records_of_undeclared_type_take_the_types_of_the_schema(program: Any, env: Any) -> None:
    schema = Schema.new_builder().column("a", DataTypes.BIGINT()).column("b", DataTypes.STRING()).build()
    table = env.from_data_stream(program.from_collection([1, 2]).map(lambda n: (n, "x" * n)), schema)
    assert _rows(env.to_data_stream(table)) == [Row(a=1, b="x"), Row(a=2, b="xx")]


def _changes(program: Any) -> Any:
    kinds = RowKind
    rows = [
        Row.of_kind(kinds.INSERT, "ann", 12), Row.of_kind(kinds.INSERT, "bob", 5),
        Row.of_kind(kinds.UPDATE_BEFORE, "ann", 12), Row.of_kind(kinds.UPDATE_AFTER, "ann", 100),
        Row.of_kind(kinds.DELETE, "bob", 5),
    ]  # fmt: skip
    return program.from_collection(rows, Types.ROW([Types.STRING(), Types.INT()]))


def test_a_collection_of_rows_with_kinds_is_a_changelog(program: Any, env: Any) -> None:
    table = env.from_changelog_stream(_changes(program))
    assert table.to_arrow().to_pydict() == {"f0": ["ann"], "f1": [100]}
    changes = _rows(env.to_changelog_stream(table))
    assert [(r.get_row_kind().short, *r) for r in changes] == [
        ("+I", "ann", 12), ("+I", "bob", 5), ("-U", "ann", 12), ("+U", "ann", 100), ("-D", "bob", 5),
    ]  # fmt: skip


def test_rows_of_undeclared_type_are_a_changelog_with_a_schema(program: Any, env: Any) -> None:
    schema = Schema.new_builder().column("who", DataTypes.STRING()).column("n", DataTypes.BIGINT()).build()
    again = env.to_changelog_stream(env.from_changelog_stream(_changes(program))).map(lambda row: row)
    table = env.from_changelog_stream(again, schema)
    assert table.to_arrow().to_pydict() == {"who": ["ann"], "n": [100]}
    pairs = _rows(env.to_retract_stream(table, Types.ROW([Types.STRING(), Types.LONG()])))
    assert (True, ("ann", 100)) in pairs
    assert (False, ("bob", 5)) in pairs


def test_a_stream_of_a_declared_type_is_a_changelog_of_inserts(program: Any, env: Any) -> None:
    schema = Schema.new_builder().column_by_expression("twice", "f0 * 2").build()
    for given, columns in ((None, ["f0", "f1"]), (schema, ["f0", "f1", "twice"])):
        table = env.from_changelog_stream(_pairs(program).map(lambda r: r, PAIRS), given)
        assert table.get_schema().get_column_names() == columns
        assert {row.get_row_kind() for row in _rows(env.to_changelog_stream(table))} == {RowKind.INSERT}


def test_event_time_of_a_stream_is_event_time_of_its_table(program: Any, env: Any) -> None:
    timed = program.from_collection([("a", 1_000), ("a", 2_000), ("a", 61_000)], EVENTS)
    timed = timed.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r, _: r.ms)
    )
    schema = (
        Schema.new_builder()
        .column_by_metadata("at", DataTypes.TIMESTAMP_LTZ(3), "rowtime")
        .column_by_expression("big", "UPPER(k)")
        .watermark("at", "SOURCE_WATERMARK()")
        .build()
    )
    minute = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(at), INTERVAL '1' MINUTE))"
    env.create_temporary_view("declared", env.from_data_stream(timed, schema))
    env.create_temporary_view("named", timed, col("k").alias("big"), col("at").rowtime)
    for view, key in (("declared", "A"), ("named", "a")):
        counts = env.sql_query(
            f"SELECT big, window_end, COUNT(*) AS n FROM {minute.format(view)} GROUP BY big, window_start, window_end"
        )
        assert _rows(env.to_data_stream(counts)) == [
            (key, dt.datetime(1970, 1, 1, 0, 1), 2), (key, dt.datetime(1970, 1, 1, 0, 2), 1),
        ]  # fmt: skip
    # And back: the rows of the stream have the table's event time.
    times = env.to_data_stream(env.from_path("declared")).process(_TimesOf(), Types.LONG())
    assert _rows(times) == [1_000, 2_000, 61_000]


class _TimesOf:
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.timestamp()


def test_a_watermark_by_an_expression(program: Any, env: Any) -> None:
    schema = (
        Schema.new_builder()
        .column_by_expression("at", "TO_TIMESTAMP_LTZ(ms, 3)")
        .watermark("at", "at - INTERVAL '1' SECOND")
        .build()
    )
    timed = program.from_collection([("a", 1_000), ("a", 61_000)], EVENTS)
    env.create_temporary_view("e", env.from_data_stream(timed, schema))
    last = env.sql_query(
        "SELECT MAX(ms) AS ms FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(at), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    assert _rows(env.to_data_stream(last)) == [(1_000,), (61_000,)]


def test_a_statement_set_joins_the_job_of_the_streams(program: Any, env: Any) -> None:
    env.execute_sql("CREATE TABLE dropped (n BIGINT, w STRING) WITH ('connector' = 'blackhole')")
    pairs = _pairs(program)
    inserts = env.create_statement_set().add_insert("dropped", env.from_data_stream(pairs))
    inserts.attach_as_datastream()
    pairs.print()
    graph = program.job_graph()
    sinks = [op.spec.connector for v in graph.vertices for op in v.operators if op.spec.is_sink]
    assert sorted(sinks) == ["blackhole", "print"]
    # The stream under the table and the stream under print() are one step, which reads its collection once.
    assert (
        sum(
            1
            for v in graph.vertices
            for op in v.operators
            if type(op.spec).__name__ == "CollectionSourceSpec"
        )
        == 1
    )


def test_both_environments_have_one_configuration(program: Any, env: Any) -> None:
    program.set_parallelism(3)
    assert env.get_config().get("parallelism.default", "") == "3"
    env.execute_sql("SET 'pipeline.name' = 'both'")
    assert program.configuration["pipeline.name"] == "both"


def _named_later(program: Any, env: Any) -> None:
    stream = _pairs(program).map(lambda r: r, PAIRS)
    table = env.from_data_stream(stream)
    stream.uid("later")
    env.to_data_stream(table).execute_and_collect()


REFUSED = {
    "updates as a plain stream": (
        SqlError, "whose rows are updated",
        lambda p, e: e.to_data_stream(e.from_data_stream(_pairs(p)).group_by(col("f1")).select(col("f0").sum))),
    "updates as insert only": (
        SqlError, "whose rows are updated",
        lambda p, e: e.to_changelog_stream(e.from_changelog_stream(_changes(p)), None, ChangelogMode.insert_only())),
    "upsert": (
        UnsupportedError, "upsert", lambda p, e: e.from_changelog_stream(_changes(p), None, ChangelogMode.upsert())),
    "a kind of a declared type in a changelog": (
        FunctionError, r"-D \(1, 'a'\)",
        lambda p, e: _rows(e.to_changelog_stream(e.from_changelog_stream(
            _pairs(p).map(lambda r: Row(*r).with_kind(RowKind.DELETE), PAIRS))))),
    "a kind from a step with a declared type": (
        FunctionError, r"-D \(1, 'a'\)",
        lambda p, e: _rows(_pairs(p).map(lambda r: Row(*r).with_kind(RowKind.DELETE), PAIRS))),
    "a kind in a field of a declared type": (
        FunctionError, "a Row of kind -U",
        lambda p, e: _rows(_pairs(p).map(
            lambda r: [Row(*r).with_kind(RowKind.UPDATE_BEFORE)], Types.LIST(Types.ROW([Types.LONG(), Types.STRING()]))))),
    "a collection of rows with kinds as a plain stream": (
        SpecError, "rows of a collection have kinds", lambda p, e: _rows(_changes(p).map(lambda r: r.get_row_kind().short))),
    "kinds without a schema": (
        SpecError, "without a schema", lambda p, e: e.from_changelog_stream(_pairs(p).map(lambda r: Row(*r)))),
    "an unknown column": (
        SpecError, "no column 'f7'", lambda p, e: e.from_data_stream(_pairs(p), col("f0"), col("f7"))),
    "more fields than columns": (
        SpecError, "more fields", lambda p, e: e.from_data_stream(_pairs(p), col("a"), col("b"), col("c"))),
    "an expression as a field": (
        SpecError, "takes columns and times", lambda p, e: e.from_data_stream(_pairs(p), col("f0") + 1)),
    "the source's watermark of another column": (
        UnsupportedError, "SOURCE_WATERMARK",
        lambda p, e: e.from_data_stream(_pairs(p), Schema.new_builder().column_by_expression(
            "at", "TO_TIMESTAMP_LTZ(f0, 3)").watermark("at", "SOURCE_WATERMARK()").build())),
    "a step that changes after its table": (SpecError, "was changed after", _named_later),
    "a set of tables alone": (
        UnsupportedError, "without a DataStream program",
        lambda p, e: TableEnvironment.create().create_statement_set().attach_as_datastream()),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_name(case: str, program: Any, env: Any) -> None:
    error, words, act = REFUSED[case]
    with pytest.raises(error, match=words):
        act(program, env)
