"""Real planners, forked from a real template: each is as if Python had been started for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from penstock.errors import SqlError
from penstock.messages.cluster import JobSpec
from penstock.processes import is_alive
from penstock_services.dispatcher.planner_processes import PlannerProcesses
from penstock_services.dispatcher.planning import Planner
from tests.services.dispatcher.light_template import light_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

#: Does what a user's code may do, then says what it found before.
PROBE = """
import json, os, random, sys

def main():
    asked = json.load(sys.stdin)
    before = {
        "pid": os.getpid(), "template": os.getppid(), "session": os.getsid(0), "folder": os.getcwd(),
        "environment": dict(os.environ), "modules": sorted(sys.modules), "random": random.random(),
        "path": list(sys.path), "args": sys.argv, "flags": str(sys.flags),
    }
    sys.path.insert(0, asked["beside"])
    import beside
    before["beside"] = beside.VALUE
    if "numpy" in asked:
        import numpy
        before["numpy"] = numpy.random.random()
    os.environ["LEFT"] = "behind"
    sys.modules["left_behind"] = beside
    os.chdir("/")
    random.seed(1)
    print("for the log", file=sys.stderr)
    print(json.dumps(before))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # pyc files know seconds only
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "sitecustomize.py").write_text("")  # the template imports it at its start
    light_template(monkeypatch, "numpy.random")
    return tmp_path


@pytest.fixture
async def processes(folder: Path) -> AsyncIterator[PlannerProcesses]:
    made = PlannerProcesses()
    yield made
    await made.close()


async def probe(processes: PlannerProcesses, folder: Path, value: int, **asked: Any) -> dict[str, Any]:
    (folder / "user").mkdir(exist_ok=True)
    (folder / "user" / "beside.py").write_text(f"VALUE = {value}")
    data = json.dumps({"beside": str(folder / "user"), **asked}).encode()
    code, out, err = await processes.run(
        data, module="probe", program="", variables={"GIVEN": str(value)}, limit_s=600
    )
    assert code == 0, err
    assert err == b"for the log\n"
    found: dict[str, Any] = json.loads(out)
    assert found["beside"] == value  # the text of this time
    assert found["environment"] == {**os.environ, "GIVEN": str(value)}
    return found


async def test_a_planner_finds_nothing_of_the_one_before(processes: PlannerProcesses, folder: Path) -> None:
    first, second = [await probe(processes, folder, i, numpy=1) for i in range(2)]
    assert first["template"] == second["template"]
    assert first["pid"] != second["pid"]
    assert [found["session"] for found in (first, second)] == [first["pid"], second["pid"]]
    for same in ("folder", "modules", "path", "args", "flags"):
        assert first[same] == second[same]
    for other in ("random", "numpy"):
        assert first[other] != second[other]
    assert os.listdir(f"/proc/{first['template']}/task") == [str(first["template"])]
    assert "penstock_services" not in {name.partition(".")[0] for name in first["modules"]}


async def test_templates_are_replaced(
    processes: PlannerProcesses, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await probe(processes, folder, 1)
    os.kill(found["template"], signal.SIGKILL)
    after_a_death = await probe(processes, folder, 2)
    assert after_a_death["template"] != found["template"]

    # A planner that runs is not ended because the code has changed.
    (folder / "waits.py").write_text(
        "import sys\ndef main(): sys.stdin.read(); open(sys.argv[0][:-8] + 'go').read()\n"
    )
    os.mkfifo(folder / "go")
    waiting = asyncio.create_task(processes.run(b"", module="waits", program="", variables={}, limit_s=600))
    await probe(processes, folder, 3)
    (folder / "sitecustomize.py").write_text("CHANGED = 1")
    changed = await probe(processes, folder, 4)
    assert changed["template"] != after_a_death["template"]
    assert is_alive(after_a_death["template"])
    await asyncio.to_thread((folder / "go").write_text, "")
    assert (await waiting)[0] == 0
    assert not is_alive(after_a_death["template"])

    monkeypatch.setenv("NEW", "1")
    assert (await probe(processes, folder, 5))["template"] != changed["template"]


async def test_at_the_time_limit_all_that_a_planner_started_ends(
    processes: PlannerProcesses, folder: Path
) -> None:
    (folder / "stays.py").write_text(
        "import os, subprocess, sys, time\n"
        f"def main():\n child = subprocess.Popen(['sleep', '600'])\n"
        f" open({str(folder / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n time.sleep(600)\n"
    )
    await probe(processes, folder, 1)
    with pytest.raises(TimeoutError):
        await processes.run(b"", module="stays", program="", variables={}, limit_s=2)
    planner, child = map(int, (folder / "pids").read_text().split())
    assert not is_alive(planner)
    async with asyncio.timeout(60):
        while _runs(child):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("raise SystemExit(3)", 3, b""),
        ("raise SystemExit('so it ends')", 1, b"so it ends\n"),
        ("import os; os.abort()", -signal.SIGABRT, b""),
        ("1 / 0", 1, b"ZeroDivisionError"),
        (
            "import atexit, sys; atexit.register(lambda: sys.stderr.write('at exit'));"
            "import threading; threading.Thread(target=lambda: sys.stderr.write('thread ')).start()",
            0,
            b"thread at exit",
        ),
    ],
)
async def test_how_it_ends(
    processes: PlannerProcesses, folder: Path, text: str, code: int, says: bytes
) -> None:
    (folder / "ends.py").write_text(f"def main():\n {text}\n")
    ended, out, err = await processes.run(
        b"x" * 1_000_000, module="ends", program="", variables={}, limit_s=600
    )
    assert (ended, out) == (code, b"")
    assert says in err


async def test_programs_of_each_kind() -> None:
    planner = Planner()
    program = "from penstock.api import StreamExecutionEnvironment, Sink\nimport os\n"
    program += "env = StreamExecutionEnvironment.get_execution_environment()\n"
    program += "env.from_collection([os.getppid()]).sink_to(Sink.connector('collect'))\nenv.execute('x')"
    sql = "CREATE TABLE t (a INT) WITH ('connector' = 'datagen'); CREATE TABLE s (a INT) WITH ('connector' = 'blackhole');"
    try:
        graphs = [
            await planner.plan(JobSpec(python=program, sql=None)),
            await planner.plan(JobSpec(sql=f"{sql} INSERT INTO s SELECT a FROM t")),
            await planner.plan(JobSpec(python=program)),
        ]
        with pytest.raises(SqlError, match="nowhere"):
            await planner.plan(JobSpec(sql="SELECT * FROM nowhere"))
        assert await planner.state_problems(graphs[0], {}) == []
    finally:
        await planner.close()
    first, _, third = [msgspec.to_builtins(graph) for graph in graphs]
    assert first == third  # the template's id stands in it: one template has forked both
