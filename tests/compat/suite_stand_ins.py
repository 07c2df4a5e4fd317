"""Stands in for what PyFlink's own tests take from Java: a gateway, a mini cluster, a sink that collects.

A test that asks the gateway for anything else raises ``NeedsJava``: there is no Java to ask.
"""

from __future__ import annotations

import datetime as dt
import importlib
import itertools
import os
import shutil
import sys
import tempfile
import types
import unittest
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from penstock.api import Configuration, Sink, StreamExecutionEnvironment, TimestampAssigner, WatermarkStrategy
from penstock.api.connectors import PreparedSink
from penstock.columnar.rows import Row
from penstock.connectors.print import format_value
from penstock.errors import PenstockError
from penstock.table import StreamTableEnvironment
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.api import DataStream

#: Number of a sink → the records that it took, in the order in which they came.
_TAKEN: dict[int, list[Any]] = {}
_numbers = itertools.count()
T = TypeVar("T")
#: The environment variable in which PyFlink's tests say how their workers run.
_MODE = "_python_worker_execution_mode"
#: Settings of Flink's own processes, which a test sets only to have more time or another worker.
_OF_FLINK = ("pekko.", "python.", "taskmanager.")


class NeedsJava(Exception):
    """A test asks for something of Java."""


class Java:
    """Whatever a test looks up in the gateway; using it raises ``NeedsJava``."""

    def __init__(self, name: str = "gateway") -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Java(f"{self._name}.{name}")

    def __call__(self, *arguments: Any) -> NoReturn:
        raise NeedsJava(self._name)

    def __iter__(self) -> NoReturn:
        raise NeedsJava(self._name)

    def __eq__(self, other: object) -> NoReturn:
        raise NeedsJava(self._name)

    __hash__ = None  # type: ignore[assignment]


#: What PyFlink's own tests import from ``pyflink.table.types`` and PyFlink keeps to itself.
PRIVATE_TYPES = (
    "_array_signed_int_typecode_ctype_mappings", "_array_type_mappings", "_array_unsigned_int_typecode_ctype_mappings",
    "_create_type_verifier", "_from_java_data_type", "_infer_schema_from_data", "_infer_type", "_merge_type",
    "_to_java_data_type",
)  # fmt: skip


#: Functions of PyFlink's own base classes of tests that take or give Java's objects.
_JAVA_HELPERS = ("_load_specific_flink_module_jars", "invoke_java_object_method", "to_java_data_structure")
#: Modules of Beam, in whose protocol PyFlink's worker talks with Flink's Java process.
_OF_BEAM = (
    "metrics", "metrics.cells", "metrics.execution", "metrics.metricbase", "runners", "runners.worker",
    "utils", "utils.counters",
)  # fmt: skip


class JavaObject:
    """Py4J's class of Java's objects, of which there are none."""


class NeedsPrivate(Exception):
    """A test calls what PyFlink keeps to itself."""


class Private(Java):
    """A function or class that PyFlink keeps to itself; using it raises ``NeedsPrivate``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Private(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NeedsPrivate(self._name)


def _private(name: str) -> Private:
    if name.startswith("__"):
        raise AttributeError(name)
    return Private(name)


def _java(name: str) -> Java:
    if name.startswith("__"):
        raise AttributeError(name)
    return Java(name)


def _error(name: str) -> type[Exception]:
    if name.startswith("__"):
        raise AttributeError(name)
    return PenstockError


class JavaConfiguration(Java):
    """What ``get_j_env_configuration`` gives: takes settings of Flink's own processes and forgets them."""

    def setString(self, key: str, value: str) -> None:
        if not key.startswith(_OF_FLINK):
            raise NeedsJava(f"setString({key!r})")


class WrappingConfiguration(Configuration):
    """``Configuration(j_configuration=…)`` of a test, which sets Flink's bundle size in it."""

    def __init__(self, other: Mapping[str, Any] | None = None, j_configuration: Any = None) -> None:
        super().__init__(other)


class Take:
    """Keeps the records of the sink ``number``."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, record: Any) -> Any:
        # The class travels by value, with globals of its own: the sinks' lists are those of the module.
        from tests.compat import suite_stand_ins

        suite_stand_ins._TAKEN[self.number].append(record)
        return record


class DataStreamTestSinkFunction:
    """PyFlink's collecting sink. Its stand-in in the job is a function that puts the records aside."""

    def __init__(self) -> None:
        self._number = next(_numbers)
        self.clear()

    def sink(self) -> Sink:
        blackhole = Sink.connector("blackhole")
        return PreparedSink(
            blackhole.name, blackhole.schema, blackhole.options, {}, (), prepare=self._prepared
        )

    def _prepared(self, stream: DataStream) -> DataStream:
        self._schema = stream.schema
        return stream.map(Take(self._number), stream.get_type())

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[Any]:
        taken, _TAKEN[self._number] = _TAKEN[self._number], []
        if is_python_object:
            return [str(record) if stringify else record for record in taken]
        return [java_text(record, self._schema) for record in taken]

    def clear(self) -> None:
        _TAKEN[self._number] = []


def java_text(record: Any, schema: Schema) -> str:
    """A record as ``toString`` of Flink's tuple, row or value says it."""
    if len(schema) == 1 and schema.names == ["value"]:
        return _text(record, schema.types[0])
    parts = [_text(value, type_) for value, type_ in zip(record, schema.types, strict=True)]
    return f"+I[{', '.join(parts)}]" if isinstance(record, Row) else f"({','.join(parts)})"


def _text(value: Any, type_: t.LogicalType) -> str:
    if value is None:
        return "null"
    if type(value).__name__ == "Shown":
        return str(value)
    match type_:
        case t.RowType(fields=fields):
            return java_text(value, Schema(fields))
        case t.ArrayType(element=element):
            return "[" + ", ".join(_text(v, element) for v in value) + "]"
        case t.TimestampType():
            return str(value.replace(tzinfo=None)).rstrip("0") if value.microsecond else str(value)
        case t.RawType() if isinstance(value, (bytes, bytearray)):
            return "[" + ", ".join(map(str, value)) + "]"
        case t.TimeType():
            if not isinstance(value, dt.time):
                return str(value)
            milliseconds = value.microsecond and value.microsecond % 1000 == 0
            return value.isoformat("milliseconds" if milliseconds else "auto")
        case t.DecimalType():
            text = f"{value:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, dict) and isinstance(type_, t.MapType):
        value = list(value.items())
    return format_value(value, type_)


class SecondColumnTimestampAssigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class PyFlinkTestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tempdir = tempfile.mkdtemp()
        os.environ[_MODE] = "process"
        os.environ.setdefault("_PYTHON_WORKER_MEMORY_LIMIT", "134217728")

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.tempdir, ignore_errors=True)
        os.environ.pop(_MODE, None)

    @classmethod
    def assert_equals(cls, actual: Any, expected: list[Any]) -> None:
        assert sorted(actual) == sorted(expected), f"{sorted(actual)} != {sorted(expected)}"


class PyFlinkUTTestCase(PyFlinkTestCase):
    def setUp(self) -> None:
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.env.set_parallelism(2)
        self.t_env = StreamTableEnvironment.create(self.env)


class PyFlinkStreamingTestCase(PyFlinkTestCase):
    mode = "STREAMING"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env = StreamExecutionEnvironment.get_execution_environment()
        cls.env.set_parallelism(2)
        cls.env.set_runtime_mode(cls.mode)


class PyFlinkBatchTestCase(PyFlinkStreamingTestCase):
    mode = "BATCH"


class PythonAPICompletenessTestCase:
    """Compares PyFlink with Flink's Java classes."""

    def test_completeness(self) -> None:
        raise NeedsJava("the classes of Flink's Java API")


def modules() -> dict[str, types.ModuleType]:
    """PyFlink's modules that these names stand in for."""
    names = globals()
    of = {
        "pyflink.java_gateway": {"get_gateway": Java},
        "pyflink.testing": {},
        "pyflink.testing.source_sink_utils": {},
        "pyflink.testing.test_case_utils": {
            **{k: names[k] for k in names if k.endswith("TestCase")},
            "exec_insert_table": Java("exec_insert_table"),
            **{name: Java(name) for name in _JAVA_HELPERS},
        },
        "pyflink.util": {},
        "pyflink.util.exceptions": {"__getattr__": _error},
        "pyflink.fn_execution.state_impl": {"RemovableConcatIterator": Iterator},
        "pyflink.fn_execution.coders": {"__getattr__": _private},
        "pyflink.fn_execution.flink_fn_execution_pb2": {"__getattr__": _private},
        "pyflink.fn_execution.metrics.process": {"__path__": []},
        "pyflink.fn_execution.metrics.process.metric_impl": {"__getattr__": _private},
        "pyflink.gen_protos": {"__getattr__": _private},
        "apache_beam": {"__path__": []},
        **{f"apache_beam.{name}": {"__path__": [], "__getattr__": _private} for name in _OF_BEAM},
        "avro": {"__path__": []},
        "avro.datafile": {"DataFileReader": Java("the JARs of Avro")},
        "avro.io": {"DatumReader": Java("the JARs of Avro")},
        "pyflink.serializers": {"__getattr__": _private},
        "pyflink.table.descriptors": {"__getattr__": _private},
        "pyflink.table.resolved_expression": {"ResolvedExpression": Java("ResolvedExpression")},
        "py4j": {},
        "py4j.protocol": {"Py4JJavaError": PenstockError},
        "py4j.java_gateway": {"__getattr__": _java, "JavaObject": JavaObject},
        "pyflink.util.java_utils": {
            "__getattr__": _java,
            "get_j_env_configuration": lambda env: JavaConfiguration("configuration"),
        },
        "pyflink.pyflink_gateway_server": {
            "get_log_dir": Java("get_log_dir"),
            "on_windows": lambda: False,
            "prepare_environment_variables": Java("prepare_environment_variables"),
        },
        "pyflink.find_flink_home": {"_find_flink_source_root": Java("_find_flink_source_root")},
        "pyflink.datastream.tests.test_util": {
            "DataStreamTestSinkFunction": DataStreamTestSinkFunction,
            "SecondColumnTimestampAssigner": SecondColumnTimestampAssigner,
        },
    }
    out = {}
    for name, content in of.items():
        out[name] = types.ModuleType(name)
        out[name].__dict__.update(content)
    return out


def install() -> None:
    """Put the stand-ins into the module tree, which is installed."""
    sys.modules.update(modules())
    table_types = importlib.import_module("pyflink.table.types")
    for name in PRIVATE_TYPES:
        setattr(table_types, name, Private(name))
    importlib.import_module("pyflink.common.typeinfo")._from_java_type = Java("_from_java_type")  # type: ignore[attr-defined]
    env: Any = StreamExecutionEnvironment
    env._j_stream_execution_environment = Java("environment")
    _data_stream()._j_data_stream = Java("stream")
    add_sink = env.__mro__ and _data_stream().add_sink
    _data_stream().add_sink = lambda self, sink_func: add_sink(
        self, sink_func.sink() if isinstance(sink_func, DataStreamTestSinkFunction) else sink_func
    )
    import penstock.api.configuration as configuration

    configuration.Configuration = WrappingConfiguration  # type: ignore[misc]


def _data_stream() -> Any:
    from penstock.api import DataStream

    return DataStream


__all__ = ["NeedsJava", "WatermarkStrategy", "install"]
