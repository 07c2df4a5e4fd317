"""What ``penstock run`` takes for the job, and what for the module of its functions."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.api import execution
from penstock.cli import run
from penstock.cli.run import job_file, plan_file, read_script, spec_of
from penstock.cli.sql import Runner
from penstock.errors import FunctionError, SpecError
from penstock.jobgraph import JobGraph
from tests.cli.here import penstock_here

SQL, PY, YAML = Path("job.sql"), Path("f.py"), Path("job.yaml")


@pytest.mark.parametrize(
    ("file", "python", "want"),
    [(SQL, None, (SQL, None)), (SQL, PY, (SQL, PY)), (PY, None, (PY, None)), (None, PY, (PY, None))],
)
def test_file_and_module(file: Path | None, python: Path | None, want: tuple[Path, Path | None]) -> None:
    assert job_file(file, python) == want


@pytest.mark.parametrize(
    ("file", "python", "remedy"),
    [(None, None, ".json, .zip, .whl"), (YAML, PY, "leave it out"), (PY, PY, "imports")],
)
def test_refused(file: Path | None, python: Path | None, remedy: str) -> None:
    with pytest.raises(SpecError) as refused:
        job_file(file, python)
    error = refused.value
    assert error.expected
    assert error.got
    assert remedy in (error.remedy or "")


@pytest.mark.parametrize(
    ("name", "says", "expected"),
    [
        ("no.yaml", "cannot read the spec", "a job spec"),
        ("no.json", "cannot read the spec", "a job spec"),
        ("no.sql", "cannot read the script", "statements"),
        ("no.py", "cannot read the script", "a Python program"),
    ],
)
def test_a_file_that_is_not_there_is_called_what_it_should_be(name: str, says: str, expected: str) -> None:
    with pytest.raises(SpecError, match=says) as refused:
        read_script(Path("/nowhere") / name)
    assert expected in str(refused.value.expected)


@pytest.mark.parametrize(
    ("name", "text", "says", "place", "remedy"),
    [
        ("job.yaml", "name: x\nsql: SELECT 1\nparalelism: 2\n", "unknown field 'paralelism'", "line 3", "parallelism"),
        ("job.json", '{"sql": "SELECT 1",\n "paralelism": 2}', "unknown field 'paralelism'", "line 2", "parallelism"),
        ("job.yaml", "name: x\n  sql: [\n", "the spec is not YAML", "line 2, column 6", "docs/operations.md"),
    ],
)  # fmt: skip
def test_a_wrong_spec_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, says: str, place: str, remedy: str
) -> None:
    with pytest.raises(SpecError, match=says) as refused:
        spec_of(tmp_path / name, text, [], {})
    error = refused.value
    assert str(error.where).endswith(f"{name}, {place}")
    assert error.expected
    assert error.got
    assert remedy in (error.remedy or "")


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_there_is_not(port: str) -> None:
    done = penstock_here("up", f"--port={port}")
    assert done.returncode == 2
    assert "'--port'" in done.stderr


@pytest.mark.parametrize("name", ["job.yaml", "job.json", "job.sql", "job.py"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("\ufeffSELECT 'ä';".encode())
    assert read_script(tmp_path / name) == "SELECT 'ä';"


REFUSED = """\
from penstock.api import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()


def build():
    env.set_parallelism(0)


build()
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run in this process, on a cluster that is not asked; what they change is put back."""
    access = SimpleNamespace(
        prepare=lambda: None, defaults=dict, client=SimpleNamespace(url="http://cluster")
    )
    monkeypatch.setattr(run, "ClusterAccess", lambda *args, **kwargs: nullcontext(access))
    monkeypatch.setenv(execution.CLUSTER_VARIABLE, "")
    monkeypatch.setattr(execution, "_wait", execution._wait)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_program_that_never_executes_says_so(tmp_path: Path, here: None) -> None:
    file = tmp_path / "job.py"
    file.write_text(NAMED.replace("env.execute({})", ""))
    with pytest.raises(SpecError, match="the program executed no job") as told:
        run.run_file(file, args=[], cluster="http://cluster", config={}, detached=False, format_="table")
    assert "call env.execute() at the end" in str(told.value)


@pytest.mark.parametrize(
    ("program", "says", "shown"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError", "install 'nothing_of_this_name'"),
        ("from json import no_such_name", "ImportError", "correct the program"),
        ("def f(:\n    pass", "SyntaxError", "def f(:"),
        ("print(1)\nx = {}['key']", "KeyError", "x = {}['key']"),
    ],
)
def test_what_a_program_raises_is_told_as_its_own(
    tmp_path: Path, here: None, program: str, says: str, shown: str
) -> None:
    file = tmp_path / "job.py"
    file.write_text(program)
    with pytest.raises(FunctionError, match=f"the program raised {says}") as told:
        run.run_file(file, args=[], cluster="http://cluster", config={}, detached=False, format_="table")
    assert shown in str(told.value)
    assert str(file) in str(told.value)
    assert "runpy" not in str(told.value)
    with pytest.raises(FunctionError, match=f"the program raised {says}") as planned:
        plan_file(file, spec_of(file, program, [], {}))
    assert shown in str(planned.value)


def test_what_penstock_refuses_in_a_program_is_told_once_and_at_the_programs_lines(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(REFUSED)
    with pytest.raises(SpecError) as refused:
        plan_file(file, spec_of(file, REFUSED, [], {}))
    text = str(refused.value)
    assert text.count("not a parallelism") == 1
    assert f'File "{file}", line 10, in <module>' in text
    assert f'File "{file}", line 7, in build\n  env.set_parallelism(0)' in text
    assert "environment.py" not in text
    assert "planner.py" not in text


NAMED = """\
from penstock.api import Sink, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).sink_to(Sink.connector("blackhole"))
env.execute({})
"""
INSERT = """\
CREATE TABLE o (a INT) WITH ('connector' = 'blackhole');
INSERT INTO o VALUES (1);
"""


@pytest.mark.parametrize(
    ("name", "text", "config", "want"),
    [
        ("job.py", NAMED.format(""), {}, "job"),
        ("job.py", NAMED.format("'its own'"), {}, "its own"),
        ("job.py", NAMED.format(""), {"pipeline.name": "by hand"}, "by hand"),
        ("job.sql", INSERT, {}, "job"),
        ("job.sql", "SET 'pipeline.name' = 'its own';\n" + INSERT, {}, "its own"),
        ("job.sql", INSERT, {"pipeline.name": "by hand"}, "by hand"),
        ("job.yaml", f"name: its own\nsql: |\n  {INSERT.replace(chr(10), chr(10) + '  ')}", {}, "its own"),
        ("job.yaml", f"sql: |\n  {INSERT.replace(chr(10), chr(10) + '  ')}", {}, "job"),
    ],
)
def test_a_job_keeps_its_own_name(
    tmp_path: Path, name: str, text: str, config: dict[str, str], want: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert plan_file(file, spec_of(file, text, [], config)).name == want


PLANNED = """
CREATE TABLE few (k STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '9');
CREATE TABLE out1 (k STRING) WITH ('connector' = 'print');
"""


def test_plans_are_meant_from_the_scripts_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    config = {"execution.engine": "streaming"}
    script = folder / "both.sql"
    script.write_text(
        PLANNED + "COMPILE AND EXECUTE PLAN 'plans/p.json' FOR INSERT INTO out1 SELECT k FROM few;"
    )
    monkeypatch.chdir(tmp_path)
    written = plan_file(script, spec_of(script, script.read_text(), [], config))
    plan = folder / "plans" / "p.json"
    assert plan.is_file()
    spec = folder / "job.yaml"
    for file, text in (
        (folder / "again.sql", "EXECUTE PLAN 'plans/p.json';"),
        (spec, "sql: EXECUTE PLAN 'plans/p.json'"),
        (plan, plan.read_text()),
    ):
        graph = plan_file(file, spec_of(file, text, [], {}))
        assert (graph.vertices, graph.edges) == (written.vertices, written.edges)
        assert graph.name == file.stem


class _Access:
    """A cluster that keeps the graphs that are submitted."""

    def __init__(self) -> None:
        self.client = self
        self.graphs: list[JobGraph] = []

    def defaults(self) -> dict[str, str]:
        return {}

    def submit(self, spec: dict[str, Any]) -> str:
        self.graphs.append(msgspec.convert(spec["job_graph"], JobGraph))
        return "id"


def test_a_script_of_several_jobs_compiles_and_executes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    access = _Access()
    config = {"execution.engine": "streaming"}
    runner = Runner(access, config, "table")  # type: ignore[arg-type]
    monkeypatch.setattr(runner, "_await", lambda job_id, name: None)
    text = PLANNED + (
        "COMPILE AND EXECUTE PLAN 'p.json' FOR STATEMENT SET BEGIN INSERT INTO out1 SELECT k FROM few; END;"
        "EXECUTE PLAN 'p.json'; COMPILE PLAN 'p.json' IF NOT EXISTS FOR INSERT INTO out1 SELECT k FROM few;"
    )
    runner.run_script(text, "job.sql", tmp_path / "job.sql")
    assert len(access.graphs) == 2
    assert access.graphs[0].vertices == access.graphs[1].vertices
    told = capsys.readouterr().out
    assert f"[the plan was written to {tmp_path / 'p.json'}]" in told
    assert "was there; the statement was not compiled]" in told
