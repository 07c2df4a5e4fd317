"""Projects: steps that follow one another and share their tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.project import is_project, planned_steps, read_project
from penstock.errors import SpecError, SqlError

SPEC = """
name: two
config: {parallelism.default: 2}
steps:
  - name: first
    sql: first.sql
  - name: second
    sql: [more.sql, second.sql]
    config: {execution.checkpointing.interval: 2 s}
"""
FIRST = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '100',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '100');
CREATE TABLE evens (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/evens', 'format' = 'csv');
INSERT INTO evens SELECT n FROM numbers WHERE MOD(n, 2) = 0;
"""
SECOND = """
CREATE TABLE total (n BIGINT, s BIGINT) WITH ('connector' = 'filesystem', 'path' = 'FOLDER/total', 'format' = 'csv');
INSERT INTO total SELECT COUNT(*), SUM(n) FROM evens;
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "first.sql").write_text(FIRST.replace("FOLDER", str(tmp_path)))
    (tmp_path / "more.sql").write_text("-- nothing to run\n")
    (tmp_path / "second.sql").write_text(SECOND.replace("FOLDER", str(tmp_path)))
    (tmp_path / "two.yaml").write_text(SPEC)
    return tmp_path / "two.yaml"


def test_steps_share_tables_and_settings(project: Path) -> None:
    evens = project.parent / "evens"  # what the first step would have written
    evens.mkdir()
    (evens / "part").write_text("2\n")
    steps = list(planned_steps(project, read_project(project, SPEC), {"execution.engine": "streaming"}))
    assert [step.name for step, _ in steps] == ["first", "second"]
    configs = [planned.job_graph.config for _, planned in steps]
    assert [c["parallelism.default"] for c in configs] == ["2", "2"]
    assert "execution.checkpointing.interval" not in configs[0]
    assert configs[1]["execution.checkpointing.interval"] == "2 s"


def test_what_is_a_project() -> None:
    assert is_project(Path("a.yaml"), SPEC)
    assert not is_project(Path("a.yaml"), "sql: SELECT 1")
    assert not is_project(Path("a.sql"), SPEC)
    assert not is_project(Path("a.yaml"), "steps: [")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nsteps: [{name: b}]", "sql"),
        ("name: a\nsteps: [{name: b, sql: c, engine: d}]", "engine"),
        ("steps: []", "name"),
        ("name: a\nsteps: 3", "steps"),
    ],
)
def test_malformed(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_project(Path("a.yaml"), text)


def test_an_error_names_the_step(project: Path) -> None:
    (project.parent / "second.sql").write_text("INSERT INTO total SELECT 1")
    steps = planned_steps(project, read_project(project, SPEC), {})
    next(steps)
    with pytest.raises(SqlError) as caught:
        next(steps)
    assert "step 'second' (more.sql, second.sql)" in str(caught.value)


WITH_PYTHON = """
name: mixed
steps:
  - {{name: before, sql: first.sql, config: {{{before}}}}}
  - {{name: between, python: step.py, config: {{{between}}}}}
  - {{name: behind, sql: second.sql, config: {{{behind}}}}}
"""
BEGIN = "execution.state-recovery.path: savepoints/s"


@pytest.mark.parametrize(
    ("configs", "given"),
    [
        ({}, {"execution.state-recovery.path": "savepoints/s"}),  # -s
        ({"between": BEGIN}, {}),
        ({"before": BEGIN}, {}),  # it holds from there on
    ],
)
def test_a_python_step_begins_from_no_savepoint(
    project: Path, configs: dict[str, str], given: dict[str, str]
) -> None:
    text = WITH_PYTHON.format(**{"before": "", "between": "", "behind": "", **configs})
    with pytest.raises(
        SpecError, match="step 'between' is Python and cannot begin from a savepoint"
    ) as caught:
        next(planned_steps(project, read_project(project, text), given))  # before anything has run
    assert "savepoints/s" in (caught.value.got or "")
    assert "leave -s out" in (caught.value.remedy or "")


def test_a_savepoint_is_for_the_step_that_names_it(project: Path) -> None:
    pytest.importorskip("pyspark")
    (project.parent / "step.py").write_text("def run(step):\n    pass\n")
    evens = project.parent / "evens"  # what the first step would have written
    evens.mkdir()
    (evens / "part").write_text("2\n")
    none = "execution.state-recovery.path: ''"
    text = WITH_PYTHON.format(before=BEGIN, between=none, behind=BEGIN)
    jobs = {
        step.name: planned.job_graph
        for step, planned in planned_steps(project, read_project(project, text), {"execution.engine": "auto"})
    }
    key = "execution.state-recovery.path"
    assert {name: job.config[key] for name, job in jobs.items()} == {
        "before": "savepoints/s", "between": "", "behind": "savepoints/s",
    }  # fmt: skip
    assert "streaming: it begins from a savepoint" in jobs["before"].plan
    assert jobs["between"].plan.startswith("== Engine ==\nspark: a Python step")


def test_a_script_gives_a_python_step_a_savepoint(project: Path) -> None:
    pytest.importorskip("pyspark")
    (project.parent / "step.py").write_text("def run(step):\n    pass\n")
    (project.parent / "more.sql").write_text("SET 'execution.state-recovery.path' = 'savepoints/s';")
    text = "name: one\nsteps: [{name: only, sql: more.sql, python: step.py}]"
    with pytest.raises(SpecError, match="cannot begin from a savepoint"):
        next(planned_steps(project, read_project(project, text), {}))


@pytest.mark.cluster
def test_run_to_the_end(project: Path) -> None:
    penstock = Path(sys.executable).with_name("penstock")
    command = [penstock, "run", project, "--engine", "streaming"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert "two: first" in done.stdout
    assert "two: second" in done.stdout
    [part] = [p for p in (project.parent / "total").iterdir() if p.is_file()]
    assert part.read_text().split() == ["50,2550"]
