"""The planner: specs in, job graphs or readable errors out, in process and as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from penstock.api.planner import answer, plan_spec
from penstock.errors import FunctionError, PenstockError, SpecError
from penstock.jobgraph import JobGraph
from penstock.messages.cluster import JobSpec
from penstock.testing.harness import run_graph

PROGRAM = """
import sys
from penstock.api import StreamExecutionEnvironment, Types, Sink

def triple(x):
    return 3 * x

def build(factor="1"):
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1, 2]).map(triple, Types.LONG()).map(lambda x: x * int(factor), Types.LONG())
    stream.sink_to(Sink.connector("collect")).set_parallelism(1)
    print("planning", sys.argv)
    env.execute("tripled")

if __name__ == "__main__":
    build(*sys.argv[1:])
"""


def python(text: str = PROGRAM, **fields: Any) -> JobSpec:
    return JobSpec(python=text, **fields)


def test_a_program_is_recorded_not_run() -> None:
    graph = plan_spec(python(args=["5"], parallelism=2, config={"user.flag": True}))
    assert graph.name == "tripled"
    assert graph.config["parallelism.default"] == "2"
    assert graph.config["user.flag"] == "true"
    assert max(v.parallelism for v in graph.vertices) == 2
    # Its functions are self-contained: they run where the program's text is not.
    assert sorted(run_graph(graph).rows) == [(15,), (30,)]


def test_an_entry_point_gets_the_arguments_and_the_spec_names_the_job() -> None:
    graph = plan_spec(python(entry="build", args=["7"], name="mine"))
    assert graph.name == "mine"
    assert sorted(run_graph(graph).rows) == [(21,), (42,)]


def test_a_planned_graph_passes_with_the_specs_configuration() -> None:
    graph = plan_spec(python())
    again = plan_spec(JobSpec(job_graph=msgspec.to_builtins(graph), config={"user.x": 1}, files=["a.zip"]))
    assert again.vertices == graph.vertices
    assert again.config["user.x"] == "1"
    assert again.python_path == ("a.zip",)


def test_the_main_module_is_put_back() -> None:
    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    plan_spec(python())
    assert (sys.modules["__main__"], sys.argv, sys.path) == before


ERRORS = [
    ("def f(:", FunctionError, "SyntaxError"),
    ("x = 1\ny = x / 0\n", FunctionError, "ZeroDivisionError"),
    ("pass", SpecError, "executed no job"),
    (PROGRAM + "\n    build()\n", SpecError, "several jobs"),
    ("raise SystemExit(3)", FunctionError, "exit code 3"),
    (PROGRAM.replace('"collect"', '"colect"'), PenstockError, "colect"),
    (PROGRAM.replace("env.execute(", "list(stream.execute_and_collect("), FunctionError, "SyntaxError"),
    (PROGRAM.replace('env.execute("tripled")', "next(stream.execute_and_collect())"), PenstockError, "execute_and_collect"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error", "match"), ERRORS, ids=[m for _, _, m in ERRORS])
def test_errors_show_the_programs_line(text: str, error: type[PenstockError], match: str) -> None:
    with pytest.raises(error, match=match) as err:
        plan_spec(python(text))
    if match == "ZeroDivisionError":
        assert str(err.value).startswith("Traceback")
        assert "y = x / 0" in str(err.value)
        assert "planner.py" not in str(err.value)


def test_malformed_specs() -> None:
    for data, text in [
        (b"{", "malformed job spec"),
        (b"{}", "nothing to run"),
        (b'{"sql": "SELECT 1", "python": ""}', "several programs"),
        (b'{"pyton": "x"}', "pyton"),
        (b'{"python": "pass", "entry": "nope"}', "nope"),
        (b'{"job_graph": {"name": 1}}', "malformed job graph"),
    ]:
        reply = answer(data)
        assert text in json.dumps(reply["error"]), data


def test_as_a_process_only_the_last_line_is_the_answer() -> None:
    spec = msgspec.json.encode(python(args=["2"]))
    done = subprocess.run(
        [sys.executable, "-m", "penstock.api.planner"],
        input=spec,
        capture_output=True,
        timeout=600,
        check=True,
    )
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 1
    graph = msgspec.convert(json.loads(lines[0])["job_graph"], JobGraph)
    assert graph.name == "tripled"
    assert "planning" in done.stderr.decode()
