"""The command line against a cluster that ``penstock up`` started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.here import penstock_here

pytestmark = pytest.mark.cluster

PENSTOCK = Path(sys.executable).with_name("penstock")
VALUES = "SELECT a, a, COUNT(*) FROM (VALUES (1), (2), (2)) AS v(a) GROUP BY a ORDER BY a;"
ENDLESS = """
CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100');
CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT n FROM ticks;
"""


def penstock(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, *args], capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[subprocess.Popen, str]]:
    process = subprocess.Popen([PENSTOCK, "up", "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while "penstock info" not in text:
        line = process.stdout.readline()
        assert line, f"penstock up ended: {text}"
        text += line
    yield process, re.search(r"http://[\d.]+:\d+", text)[0]
    if process.poll() is None:
        process.kill()
        process.wait()


@pytest.fixture
def run(up, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *args: penstock(*args, "--cluster", up[1], cwd=tmp_path)


def test_select_as_json_with_unique_names(run) -> None:
    done = run("sql", "-e", VALUES, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows == [{"a": 1, "a0": 1, "EXPR$2": 1}, {"a": 2, "a0": 2, "EXPR$2": 2}]


def test_select_as_table_and_csv(run) -> None:
    table = run("sql", "-e", VALUES)
    assert "| a | a0 | EXPR$2 |" in table.stdout
    assert "2 rows in set" in table.stdout
    assert run("sql", "-e", VALUES, "--format", "csv").stdout == "a,a0,EXPR$2\n1,1,1\n2,2,2\n"


def test_inserts_run_to_their_end_in_order(run, tmp_path: Path) -> None:
    script = tmp_path / "copy.sql"
    script.write_text(
        """
        CREATE TABLE out (a BIGINT) WITH ('connector' = 'filesystem', 'path' = 'rows', 'format' = 'json');
        INSERT INTO out VALUES (1), (2), (3);
        SELECT SUM(a) AS total FROM out;
        """
    )
    done = run("sql", "-f", str(script), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"total": 6}]
    assert (tmp_path / "rows").is_dir()


FUNCTIONS = """
from penstock.api import udf


@udf(result_type="BIGINT")
def doubled(n):
    return 2 * n
"""


def test_a_script_runs_with_the_functions_of_a_module(run, tmp_path: Path) -> None:
    """Those that ``-py`` registers, and those that CREATE FUNCTION finds in its folder."""
    (tmp_path / "doubling.py").write_text(FUNCTIONS)
    script = tmp_path / "job.sql"
    text = "SELECT {}(n) AS m FROM (VALUES (1), (2)) AS v(n);"
    for create, name in (("", "doubled"), ("CREATE FUNCTION f AS 'doubling.doubled' LANGUAGE PYTHON; ", "f")):
        script.write_text(create + text.format(name))
        done = run("run", "-py", str(tmp_path / "doubling.py"), str(script), "--format", "json")
        assert done.returncode == 0, done.stderr
        assert '{"m": 2}' in done.stdout
        assert '{"m": 4}' in done.stdout
    detached = run("run", "-d", "-py", str(tmp_path / "doubling.py"), str(script))
    assert re.fullmatch(r"[0-9a-f]{32}", detached.stdout.strip()), detached.stderr
    script.write_text("CREATE FUNCTION f AS 'halving.half' LANGUAGE PYTHON; SELECT f(1);")
    missing = run("run", str(script))
    assert "give the file with -py" in missing.stderr


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1;", ["line 1"]),
        ("SELECT nme FROM (VALUES ('a')) AS v(name);", ["nme", "line 1, column 8", "name"]),
        ("SELECT * FROM missing;", ["missing", "line 1"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafkaa'); SELECT * FROM t;", ["kafkaa", "connector"]),
    ],
)
def test_errors_name_the_place_and_exit_with_1(up, sql: str, words: list[str]) -> None:
    done = penstock_here("sql", "-e", sql, "--cluster", up[1])
    assert done.returncode == 1
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_detached_job_is_listed_shown_and_cancelled(up, run, tmp_path: Path) -> None:
    spec = tmp_path / "endless.yaml"
    spec.write_text(json.dumps({"name": "endless", "sql": ENDLESS}))
    job_id = run("run", "-d", str(spec)).stdout.strip()
    assert re.fullmatch(r"[0-9a-f]{32}", job_id)
    assert job_id in run("list").stdout

    def processes() -> dict[str, dict]:
        """By role; of those that answer at once."""
        return {p["role"]: p for p in json.loads(run("info", "--format", "json").stdout)["processes"]}

    while set(found := processes()) != {"dispatcher", "jobmanager", "resourcemanager", "taskmanager"}:
        assert up[0].poll() is None
    for process in found.values():
        os.kill(process["pid"], 0)
    assert "endless" in run("info", job_id[:6]).stdout
    assert "CANCELED" in run("cancel", job_id[:6]).stdout
    missing = run("cancel", "zzz")
    assert missing.returncode == 1
    assert "no job starts with 'zzz'" in missing.stderr


DETACHED = """
from pathlib import Path

from pyflink.datastream import StreamExecutionEnvironment

rows = Path(__file__).with_name("rows.txt").read_text().split()
env = StreamExecutionEnvironment.get_execution_environment()
for name in ("first", "second"):
    env.from_collection(rows).print()
    done = env.execute(name)
    assert "has been submitted" in str(done), done
try:
    done.get_net_runtime()
except Exception as err:
    print(err)
"""


def test_a_detached_program_runs_here_and_waits_for_none_of_its_jobs(run, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("a b")
    (tmp_path / "job.py").write_text(DETACHED)
    done = run("run", "-d", str(tmp_path / "job.py"))
    assert done.returncode == 0, done.stderr
    first, second, *error = done.stdout.splitlines()
    assert f"got:      job {second}, which may still run" in "\n".join(error)
    shown = {
        name: run("info", job, "--format", "json").stdout
        for name, job in (("first", first), ("second", second))
    }
    assert all(f'"{name}"' in text for name, text in shown.items()), shown


def test_an_address_without_a_cluster(tmp_path: Path) -> None:
    done = penstock("list", "--cluster", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr
    assert "penstock up" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("sql", "-f", "missing.sql"), ["missing.sql", "No such file"]),
        (("sql", "-e", "SELECT 1", "--format", "xml"), ["--format", "table | json | csv"]),
        (("sql", "-e", "SELECT 1", "-D", "parallelism"), ["-D key=value"]),
        (("sql", "-e", "SELECT 1", "-D", "parallelism.defualt=2"), ["parallelism.default"]),
        (("sql", "-e", "SELECT 1", "--engine", "flink"), ["auto | streaming | spark"]),
        (("sql", "-e", "SELECT * FROM t"), ["unknown table 't'", "there is none", "CREATE TABLE t"]),
        (("sql", "-e", "SET 'parallelism.default' = 'two'"), ["line 1, column 1", "'parallelism.default'"]),
        (("run", "."), [".py, .sql", "got:      ."]),
        (("run", "empty.yaml"), ["empty.yaml", "nothing to run", "sql, python, job_graph", "do:"]),
        (("run", "job.txt"), [".py", ".sql"]),
        (("run", "-d", "job.sql"), ["--cluster"]),
        (("run",), ["nothing to run", "name a job"]),
        (("run", "-py", "f.py", "job.yaml"), ["-py names the module", "do:"]),
    ],
)
def test_wrong_usage(args: tuple[str, ...], words: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("{name: nothing}")
    done = penstock_here(*args, cwd=tmp_path)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr, done.stderr


def test_ctrl_c_leaves_nothing_behind(up) -> None:
    """Last: it ends the module's cluster."""
    process, url = up
    info = json.loads(penstock("info", "--format", "json", "--cluster", url).stdout)
    pids = [p["pid"] for p in info["processes"]]
    children = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process.pid)], capture_output=True, text=True
    )
    folder = re.search(r"-sd (\S+)/nats\b", children.stdout)[1]
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert process.stdout is not None
    assert "Nothing is left behind" in process.stdout.read()
    assert not Path(folder).exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
