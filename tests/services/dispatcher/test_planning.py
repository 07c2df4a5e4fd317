from __future__ import annotations

import sys
import textwrap

import msgspec
import pytest

from penstock.errors import FunctionError, InternalError, SpecError, SqlError
from penstock.messages.cluster import JobSpec
from penstock_services.dispatcher.planning import Planner
from tests.services.dispatcher.light_template import light_template
from tests.services.jobmanager.graphs import pipeline

SPEC = JobSpec(sql="SELECT 1")


@pytest.fixture
def planner(tmp_path, monkeypatch):
    """A planner whose process runs the given program instead of the real one."""

    def make(program: str, **options) -> Planner:
        (tmp_path / "fake_planner.py").write_text(textwrap.dedent(program))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        light_template(monkeypatch)
        return Planner(module="fake_planner", **options)

    return make


async def test_its_last_line_is_the_answer(planner):
    answer = msgspec.json.encode({"job_graph": pipeline()}).decode()
    made = planner(
        f"import sys\ndef main():\n spec = sys.stdin.read(); assert 'SELECT 1' in spec\n print('hello'); print({answer!r})"
    )
    assert await made.plan(SPEC) == pipeline()


async def test_the_users_error_is_raised_here(planner):
    made = planner("""print('{"error": {"type": "SqlError", "message": "no table t", "where": "line 1"}}')""")
    with pytest.raises(SqlError, match="no table t"):
        await made.plan(SPEC)


@pytest.mark.parametrize("program", ["import os; os._exit(3)", "print('no json')", "raise SystemExit(1)"])
async def test_no_answer_is_said(planner, program):
    with pytest.raises((FunctionError, InternalError), match="without an answer"):
        await planner(program).plan(SPEC)


async def test_planning_has_a_time_limit(planner):
    made = planner("import time; time.sleep(600)", limit_s=0.3)
    with pytest.raises(SpecError, match=r"longer than 0.3 s"):
        await made.plan(SPEC)


async def test_a_job_graph_needs_no_process():
    made = Planner(module="there.is.no.such.module")
    spec = JobSpec(job_graph=msgspec.to_builtins(pipeline()))
    assert await made.plan(spec) == pipeline()
    assert sys.modules.get("fake_planner") is None
