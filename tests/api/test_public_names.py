"""What ``penstock.api`` exports: one list for users, editors and type checkers, and all of it typed."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock.api
import penstock.spark
import penstock.types

ROOT = Path(__file__).parents[2]


def names_for_type_checkers(module: Any) -> set[str]:
    """What the module imports at its top, or below ``if TYPE_CHECKING``."""
    tree = ast.parse(Path(module.__file__).read_text())
    blocks = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize("module", [penstock.api, penstock.spark, penstock.types])
def test_type_checkers_and_programs_find_the_same_names(module: Any) -> None:
    assert set(module.__all__) == names_for_type_checkers(module) - {"annotations", "TYPE_CHECKING"}
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions of the API, and public methods that its classes define."""
    for name in penstock.api.__all__:
        found = getattr(penstock.api, name)
        if inspect.ismodule(found):
            yield from ((f"{name}.{n}", f) for n, f in vars(found).items() if inspect.isfunction(f))
        elif inspect.isclass(found):
            for attribute, value in vars(found).items():
                value = getattr(value, "__func__", value.fget if isinstance(value, property) else value)
                if inspect.isfunction(value) and (attribute == "__init__" or not attribute.startswith("_")):
                    yield f"{name}.{attribute}", value
        elif inspect.isfunction(found):
            yield name, found


def test_every_public_function_says_what_it_takes_and_gives() -> None:
    untyped = []
    for name, function in callables():
        if function.__module__.startswith("penstock."):
            parameters = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
            if not {*parameters, "return"} <= function.__annotations__.keys():
                untyped.append(name)
    assert untyped == []


PROGRAM = """
from penstock.api import DataStream, KeyedProcessFunction, StreamExecutionEnvironment, Time, Types, agg, udf
from penstock.api import TumblingEventTimeWindows, ValueStateDescriptor, RuntimeContext

env = StreamExecutionEnvironment.get_execution_environment()
stream = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))


@udf(result_type="BIGINT")
def plus(a: int, b: int) -> int:
    return a + b


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))


keyed = stream.map(lambda r: r, Types.LONG()).key_by(0)
windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
counted: DataStream = windows.aggregate(agg.count("n"))
counted.union(keyed.process(Count())).uid("all").name("all").print()
plus(1, 2)
env.execute("typed").get_job_id()
"""
MISSPELT = """
from penstock.api import DataStrem  # expected: has no attribute "DataStrem"
from penstock.api import StreamExecutionEnvironment, Types, agg, udf

env = StreamExecutionEnvironment.get_execution_environment()
env.set_paralelism(2)  # expected: has no attribute "set_paralelism"
stream = env.from_collection([1], Types.LNG())  # expected: has no attribute "LNG"
stream.mapp(lambda r: r)  # expected: has no attribute "mapp"
keyed = stream.key_by(0)
keyed.windw(None)  # expected: has no attribute "windw"
keyed.sum(0).uidd("x")  # expected: has no attribute "uidd"
stream.map(lambda r: r, on_eror="skip")  # expected: Unexpected keyword argument "on_eror"
stream.broadcast().conect(stream)  # expected: has no attribute "conect"
agg.cont()  # expected: has no attribute "cont"
env.set_parallelism("two")  # expected: incompatible type "str"


@udf(result_tpe="BIGINT")  # expected: Unexpected keyword argument "result_tpe"
def plus(a: int, b: int) -> int:
    return a + b
"""


def test_a_misspelt_name_is_an_error_for_a_type_checker(tmp_path: Path) -> None:
    """Both programs in one run: reading the library is what takes the time."""
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "misspelt.py").write_text(MISSPELT)
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--strict", *cache]
    command = [sys.executable, "-m", "mypy", *options, "right.py", "misspelt.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={"MYPYPATH": str(ROOT / "shared")}
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in errors if not line.startswith("misspelt.py")] == [], done.stderr
    said: dict[int, str] = {}
    for line in errors:
        number = int(line.split(":")[1])
        said[number] = f"{said.get(number, '')}{line}\n"
    expected = {
        number: text.partition("# expected: ")[2]
        for number, text in enumerate(MISSPELT.splitlines(), 1)
        if "# expected: " in text
    }
    assert said.keys() == expected.keys(), done.stdout
    for number, text in expected.items():
        assert re.search(re.escape(text), said[number]), said[number]


def test_importing_the_api_loads_neither_planner_nor_connectors() -> None:
    code = "import sys, penstock.api; from penstock.api import MapFunction; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"penstock.plan", "penstock.connectors", "penstock.sql", "pyarrow"} & set(loaded.split())


def test_the_list_of_places_names_modules_that_define_the_names() -> None:
    for module, names in penstock.api._WHERE.items():
        for name in names:
            assert getattr(importlib.import_module(module), name) is getattr(penstock.api, name)
