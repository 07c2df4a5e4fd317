"""Stands in for what PyFlink's own tests of tables take from Java: the sink whose rows a test reads, the base classes."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api import StreamExecutionEnvironment
from penstock.columnar.python_values import records
from penstock.columnar.rows import Row
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.registry import CONNECTORS
from penstock.connectors.simple import DeclaredConnector
from penstock.options import Option, OptionSet, text
from penstock.table import StreamTableEnvironment, Table
from penstock.types import logical as t
from penstock.types.batch import RowKind
from tests.compat import suite_stand_ins as java

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types import Batch

#: Methods that name a class of Java.
_OF_JAVA = ("create_java_function", "create_java_temporary_function", "create_java_temporary_system_function")
OPTIONS = OptionSet("connector 'test-sink'", [])
#: (kind, row as text) in the order in which the sinks took them.
TAKEN: list[tuple[RowKind, str]] = []


class Shown(str):
    """A text that a row shows as it is."""


def java_value(value: Any, type_: t.LogicalType) -> Any:
    """A point in time as Java's ``LocalDateTime`` and ``Instant`` show it, a number as ``BigDecimal`` does, also within
    arrays and rows; another value as it is."""
    if value is None:
        return None
    match type_:
        case t.ArrayType(element=element):
            return [java_value(item, element) for item in value]
        case t.RowType(fields=fields):
            return Row(*(java_value(item, field.type) for item, field in zip(value, fields, strict=True)))
        case t.DecimalType():
            return Shown(f"{value:f}")
    return java_time(value, type_)


def java_time(value: Any, type_: t.LogicalType) -> Any:
    """A point in time as Java's ``LocalDateTime`` and ``Instant`` show it; another value as it is."""
    if value is None or not isinstance(type_, t.TIMESTAMPS):
        return value
    local = isinstance(type_, t.TimestampType)
    if not local:
        value = value.astimezone(dt.UTC)
    text = value.strftime("%Y-%m-%dT%H:%M:%S")
    if value.microsecond:
        text += f".{value.microsecond:06}" if value.microsecond % 1000 else f".{value.microsecond // 1000:03}"
    elif local and text.endswith(":00"):
        text = text[:-3]
    return Shown(text if local else text + "Z")


class TestSinkWriter(SinkWriter):
    def write(self, batch: Batch) -> None:
        # As a table's rows, not as a stream's records: a single column 'value' is a row, too.
        schema = t.Schema(tuple(t.Field(f.name, f.type, row=True) for f in batch.schema.fields))
        rows = records(batch.with_columns(schema, batch.columns))
        kinds = [0] * len(batch) if batch.kinds is None else batch.kinds.tolist()
        for kind, row in zip(kinds, rows, strict=True):
            shown = [java_value(v, f.type) for v, f in zip(row, schema.fields, strict=True)]
            TAKEN.append((RowKind(kind), java.java_text(Row(*shown), schema)))


class TestSink(DeclaredConnector):
    """Flink's ``test-sink`` of its own tests: keeps the rows for ``source_sink_utils.results``."""

    name = "test-sink"
    location = ()
    roles = ("sink",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        return ("append", "retract")

    def writer(self, table: TableInfo) -> TestSinkWriter:
        return TestSinkWriter()


class FakeConnector(DeclaredConnector):
    """The connector ``fake`` of tables that a test declares and never reads."""

    name = "fake"
    location = ()
    roles = ("source",)

    def __init__(self) -> None:
        super().__init__(OptionSet("connector 'fake'", [Option("a", text, "", "Of the test.")]))


def results() -> list[str]:
    """The rows that remain of all that the sinks have taken."""
    left: Counter[str] = Counter()
    for kind, row in TAKEN:
        left[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    TAKEN.clear()
    return list(left.elements())


def exec_insert_table(table: Any, path: str) -> Any:
    return table.execute_insert(path).get_job_client().get_job_execution_result().result()


class TableTestCase(java.PyFlinkTestCase):
    mode = "STREAMING"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env = StreamExecutionEnvironment.get_execution_environment()
        cls.env.set_runtime_mode(cls.mode)
        cls.env.set_parallelism(2)
        cls.t_env = StreamTableEnvironment.create(cls.env)
        cls.t_env.get_config().set("execution.engine", "streaming")

    @classmethod
    def to_py_list(cls, actual: Any) -> list[Any]:
        return list(actual)


class BatchTableTestCase(TableTestCase):
    mode = "BATCH"


def run_with_config(config: dict[str, str], **more: Any) -> Callable[[Any], Any]:
    """A test of settings of Java's side."""

    def decorate(test: Any) -> Any:
        def refused(*args: Any, **kwargs: Any) -> None:
            raise java.NeedsJava(f"a test of {sorted(config)}")

        return refused

    return decorate


#: Options of a table as Flink's own tests still spell them, for a factory in Flink's test JAR → today's.
_OLDER_OPTIONS = {
    "'connector.type'": "'connector'",
    "'format.type'": "'format'",
    "'connector.path'": "'path'",
    "'format.field-delimiter'": "'csv.field-delimiter'",
}


def _of_today(statement: str) -> str:
    if "'connector.type'" not in statement:
        return statement
    lines = [line for line in statement.splitlines() if "ignore-first-line" not in line]
    statement = "\n".join(lines)
    for older, today in _OLDER_OPTIONS.items():
        statement = statement.replace(older, today)
    _without_further_columns(statement)
    return statement


def _without_further_columns(statement: str) -> None:
    """Cut the file's lines to the table's columns: the older factory ignores further ones."""
    declared = statement[statement.index("(") + 1 : statement.lower().index("with")].splitlines()
    columns = [line for line in declared if re.match(r"\s*\w+ [A-Z]+", line) and "WATERMARK" not in line]
    path = Path(re.findall(r"'path'\s*=\s*'([^']*)'", statement)[0])
    if path.is_file():
        lines = [line.split(",")[: len(columns)] for line in path.read_text().splitlines()]
        path.write_text("".join(",".join(line) + "\n" for line in lines))


def install(modules: dict[str, Any], submit: Any) -> None:
    """Put the stand-ins into PyFlink's modules of tests; jobs of tables run by ``submit``."""
    from penstock.table import running

    running.submit = submit
    env: Any = StreamTableEnvironment
    env._j_tenv = java.Java("table environment")
    execute_sql = env.execute_sql
    env.execute_sql = lambda self, stmt: execute_sql(self, _of_today(stmt))
    for name in _OF_JAVA:
        setattr(env, name, java.Java(name))
    table: Any = Table
    table._j_table = java.Java("table")
    CONNECTORS.register("test-sink", TestSink())
    CONNECTORS.register("fake", FakeConnector())
    cases = modules["pyflink.testing.test_case_utils"]
    cases.PyFlinkStreamTableTestCase = TableTestCase
    cases.PyFlinkBatchTableTestCase = BatchTableTestCase
    cases.exec_insert_table = exec_insert_table
    cases.run_with_config = run_with_config
    utils = modules["pyflink.testing.source_sink_utils"]
    utils.results = utils.retract_results = results
    modules["pyflink.testing"].source_sink_utils = utils
