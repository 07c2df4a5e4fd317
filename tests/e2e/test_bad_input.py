"""Bad input on a real cluster: every error names its place and its remedy, nothing hangs and
nothing stays behind. One cluster serves the module, as it must: no error may harm it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import REST_ERROR_TYPE
from tests.cli.here import penstock_here

pytestmark = pytest.mark.cluster

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
RECORDS = '{"a": 1, "b": "x"}\nnot json\n{"a": "zz", "b": "y"}\n{"a": 3, "b": "z"}\n'

#: A hang fails the test; no statement about how long anything takes.
LIMIT_S = 600.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    # A task manager whose slots die is not restarted for it: one process from first to last.
    with EmbeddedCluster(slots=2) as made:
        yield made
        # Whatever the tests did, all slots are free again and no slot's process is left.
        with ClusterClient(made.rest_url) as client:
            deadline = time.monotonic() + LIMIT_S
            while (busy := _busy(client)) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert not busy


def _busy(client: ClusterClient) -> list[Any]:
    slots = [s for p in client.info()["processes"] for s in p.get("slots", [])]
    return [s for s in slots if s["state"] != "free" or s.get("pid")]


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.rest_url) as made:
        yield made


def penstock(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=cwd,
        env={**os.environ, **env},
    )


def sql(cluster: EmbeddedCluster, script: str, *args: str, cwd: Path | None = None) -> Any:
    return penstock_here(
        "sql", "--cluster", cluster.rest_url, "-e", script, "--format", "json", *args, cwd=cwd
    )


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    path = tmp_path / "bad.json"
    path.write_text(RECORDS)
    return path


def table(path: Path, **more: str) -> str:
    options = {"connector": "filesystem", "path": str(path), "format": "json", **more}
    text = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    return f"CREATE TABLE t (a INT, b STRING) WITH ({text});"


# -- SQL, by the command line --------------------------------------------------------------

GEN = "CREATE TABLE g (a INT, s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '3');\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("SELEC 1", ["PS-SQL", "line 1, column 1"]),
        (GEN + "SELECT aa FROM g", ["unknown column 'aa'", "line 2, column 8", "did you mean 'a'"]),
        (GEN + "SELECT a FROM gg", ["unknown table", "line 2, column 15", "'gg'"]),
        (GEN + "SELECT FLOORR(a) FROM g", ["unknown function FLOORR", "line 2, column 8", "FLOOR"]),
        (GEN + "SELECT a FROM g WHERE s", ["WHERE needs a condition", "BOOLEAN", "STRING"]),
        (
            "CREATE TABLE t (a INT) WITH ('connector' = 'nat');",
            ["unknown connector 'nat'", "line 1", "'nats'"],
        ),
        (
            "CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'rows' = '1'); SELECT a FROM t",
            ["unknown option 'rows'", "table 't'"],
        ),
        (
            "CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '/no/such', 'format' = 'json');"
            "SELECT a FROM t",
            ["no file at '/no/such'", "option 'path'", "check the path"],
        ),
        ("SET 'paralelism.default' = '2'", ["paralelism.default", "parallelism.default"]),
        ("SELECT CAST(x AS INT) FROM (VALUES ('1'), ('b')) AS v(x)", ["cannot cast 'b' to INT", "TRY_CAST"]),
    ],
)
def test_sql_says_line_column_and_remedy(cluster: EmbeddedCluster, script: str, words: list[str]) -> None:
    done = sql(cluster, script)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_script_and_a_wrong_option(cluster: EmbeddedCluster) -> None:
    done = penstock("sql", "-f", "/no/such.sql", "--cluster", cluster.rest_url)
    assert done.returncode == 1
    assert "/no/such.sql" in done.stderr
    done = penstock_here("sql", "-e", "SELECT 1", "-D", "nonsense", "--cluster", cluster.rest_url)
    assert done.returncode == 1
    assert "-D key=value" in done.stderr


# -- records that do not parse -----------------------------------------------------------------


def test_fail_names_file_line_and_record(cluster: EmbeddedCluster, bad_file: Path) -> None:
    done = sql(cluster, table(bad_file) + "SELECT * FROM t")
    assert done.returncode == 1
    for word in ("PS-RECORD", f"{bad_file}, line 2", "on-error", "not json"):
        assert word in done.stderr


def test_skip_counts_and_goes_on(cluster: EmbeddedCluster, client: ClusterClient, bad_file: Path) -> None:
    done = sql(cluster, table(bad_file, **{"on-error": "skip"}) + "SELECT * FROM t")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["a"] for line in done.stdout.splitlines()] == [1, 3]
    newest = max(client.jobs(), key=lambda j: j["start-time"])
    assert client.accumulators(newest["jid"])["numRecordsInErrors"] == 2


def test_dead_letters_are_kept_and_readable(
    cluster: EmbeddedCluster, client: ClusterClient, bad_file: Path
) -> None:
    done = sql(cluster, table(bad_file, **{"on-error": "dead-letter"}) + "SELECT * FROM t")
    assert done.returncode == 0, done.stderr
    newest = max(client.jobs(), key=lambda j: j["start-time"])
    reply = httpx.get(f"{cluster.rest_url}/jobs/{newest['jid']}/dead-letters", timeout=LIMIT_S).json()
    assert [letter["record"] for letter in reply["dead-letters"]] == ["not json", '{"a": "zz", "b": "y"}']
    assert str(bad_file) in reply["dead-letters"][0]["where"]
    assert reply["more"] is False


def test_relative_paths_mean_the_users_folder(cluster: EmbeddedCluster, bad_file: Path) -> None:
    script = table(Path("bad.json"), **{"on-error": "skip"}) + "SELECT a FROM t"
    done = sql(cluster, script, cwd=bad_file.parent)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_a_folder_that_cannot_be_written(cluster: EmbeddedCluster, bad_file: Path) -> None:
    script = f"CREATE TABLE s (a INT) WITH ('connector' = 'filesystem', 'path' = '{bad_file}/out', 'format' = 'json');"
    done = sql(cluster, script + "INSERT INTO s VALUES (1)")
    assert done.returncode == 1
    assert f"{bad_file}/out" in done.stderr
    assert "permissions" in done.stderr


# -- a broker that is not there ----------------------------------------------------------------


def test_a_dead_broker_fails_the_job_with_its_address(cluster: EmbeddedCluster) -> None:
    with socket.socket() as taken:  # bound, not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        options = f"'connector' = 'nats', 'url' = '{url}', 'stream' = 's', 'subject' = 'a', 'format' = 'json'"
        done = sql(cluster, f"CREATE TABLE t (a INT) WITH ({options}); SELECT * FROM t")
    assert done.returncode == 1
    for word in ("PS-BROKER", url, "option 'url'", "nats-server"):
        assert word in done.stderr


def test_a_stream_that_is_not_there(cluster: EmbeddedCluster) -> None:
    options = f"'connector' = 'nats', 'url' = '{cluster.nats_url}', 'stream' = 'absent', 'subject' = 'a', 'format' = 'json'"
    done = sql(cluster, f"CREATE TABLE t (a INT) WITH ({options}); SELECT * FROM t")
    assert done.returncode == 1
    assert "no stream 'absent'" in done.stderr


# -- specs, over REST and the bus -----------------------------------------------------------------

SPECS = [
    ("name: [x", "PS-SPEC", "line 2, column 1"),
    ("sqll: SELECT 1", "PS-SPEC", "did you mean 'sql'?"),
    ("sql: 5", "PS-SPEC", "field 'sql'"),
    ('{"sql": "SELECT 1", "python": "x"}', "PS-SPEC", "exactly one program"),
    ("sql: SELECT FOO", "PS-SQL", "line 1, column 8"),
    ('{"python": "import absent_module"}', "PS-FUNCTION", "absent_module"),
    ('{"python": "import os; os._exit(3)"}', "PS-FUNCTION", "exit code 3"),
    (
        "sql: CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = 'x.json', 'format' = 'json');"
        " SELECT * FROM t",
        "PS-CONNECTOR",
        "relative path",
    ),
    ("{sql: SELECT 1, config: {parallelism.default: many}}", "PS-SPEC", "many"),
]


@pytest.mark.parametrize(("text", "code", "words"), SPECS)
def test_specs_over_rest(cluster: EmbeddedCluster, text: str, code: str, words: str) -> None:
    accept = {"accept": REST_ERROR_TYPE}
    reply = httpx.post(f"{cluster.rest_url}/jobs", content=text, timeout=LIMIT_S, headers=accept)
    assert reply.status_code >= 400
    assert reply.json()["error"]["code"] == code
    assert words in reply.json()["errors"][0]


async def test_specs_over_the_bus(cluster: EmbeddedCluster) -> None:
    connection = await nats.connect(cluster.nats_url)
    try:
        for text, code, words in SPECS[:2]:
            reply = await connection.request("penstock.jobs.submit", text.encode(), timeout=LIMIT_S)
            answer = json.loads(reply.data)
            assert answer["error"]["code"] == code
            assert words in json.dumps(answer, ensure_ascii=False)
    finally:
        await connection.close()


def test_unknown_paths_and_jobs(cluster: EmbeddedCluster) -> None:
    reply = httpx.get(f"{cluster.rest_url}/nosuch", timeout=LIMIT_S)
    assert reply.status_code == 404
    assert "docs/rest.md" in reply.json()["errors"][0]
    assert httpx.get(f"{cluster.rest_url}/jobs/absent", timeout=LIMIT_S).status_code == 404
    done = penstock_here("cancel", "absent", "--cluster", cluster.rest_url)
    assert done.returncode == 1
    assert "penstock list" in done.stderr


# -- functions -----------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
from penstock.api import StreamExecutionEnvironment, Types
env = StreamExecutionEnvironment.get_execution_environment()
def work(x):
    {body}
    return x
env.from_collection(list(range(10)), type_info=Types.LONG()).map(work, Types.LONG()).print()
env.execute("bad")
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = 1 // (5 - x)", ["ZeroDivisionError", "in work", "operator 'Map'", "record 5"]),
        ("sys.exit(4)", ["in work", "SystemExit: 4", "sys.exit(4)"]),
        ("os._exit(3)", ["exit code 3", "Map", "os._exit"]),
        ("os.kill(os.getpid(), 11)", ["SIGSEGV", "Map"]),
        ("return 'text'", ["BIGINT", "'te'"]),
        ("pass\n    raise KeyError(x)", ["KeyError: 0", "in work", "record 0"]),
    ],
)
def test_functions_that_go_wrong(
    cluster: EmbeddedCluster, tmp_path: Path, body: str, words: list[str]
) -> None:
    path = tmp_path / "job.py"
    path.write_text(PROGRAM.format(body=body))
    done = penstock("run", str(path), "--cluster", cluster.rest_url)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr
    if "in work" in words:
        _, _, error = f"\n{done.stderr}".partition("\nerror: ")  # behind what was said of attempts before
        assert error.startswith("Traceback"), "the user's traceback first"


def test_code_that_ends_one_of_two_processes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The other slot hears of a broken connection first; the cause is told all the same."""
    path = tmp_path / "job.py"
    path.write_text(
        "import os\n"
        "from penstock.api import StreamExecutionEnvironment, Types\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.set_parallelism(2)\n"
        "pair = Types.TUPLE([Types.LONG(), Types.LONG()])\n"
        "def work(a, b):\n    os._exit(3)\n"
        "rows = env.from_collection([(i % 5, i) for i in range(100)], type_info=pair)\n"
        "rows.key_by(lambda r: r[0], key_type=Types.LONG()).reduce(work).print()\n"
        "env.execute('exits')\n"
    )
    done = penstock("run", str(path), "--cluster", cluster.rest_url)
    assert done.returncode == 1
    assert "exit code 3" in done.stderr


def test_python_functions_in_sql(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    module = tmp_path / "my_functions.py"
    module.write_text(
        "from penstock.api import udf\n"
        "@udf(result_type='BIGINT')\ndef doubled(x): return 2 * x\n"
        "@udf(result_type='BIGINT')\ndef picky(x):\n    if x == 3: raise ValueError('no threes')\n    return x\n"
    )
    values = "FROM (VALUES (1), (3)) AS v(x)"
    script = f"CREATE FUNCTION twice AS 'my_functions.doubled' LANGUAGE PYTHON; SELECT twice(doubled(x)) AS y {values}"
    done = sql(cluster, script, "-py", str(module))
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(line)["y"] for line in done.stdout.splitlines()) == [4, 12]
    done = sql(cluster, f"SELECT picky(x) {values}", "-py", str(module))
    assert done.returncode == 1
    for word in ("in picky", "no threes", "arguments (3)"):
        assert word in done.stderr


def test_a_function_that_blocks_is_named_and_can_be_cancelled(
    cluster: EmbeddedCluster, client: ClusterClient, until: Callable[..., Any]
) -> None:
    text = PROGRAM.format(body="time.sleep(100_000)")
    job_id = client.submit({"python": text})

    def stalled() -> dict[str, Any] | None:
        """As soon as the slot's traceback is there; one that has hardly begun may be slow, too."""
        slots = client.job(job_id)["stalled"]
        return next((slot for slot in slots if "in work" in (slot["frame"] or "")), None)

    assert "Map" in until(stalled, "the slot that hangs to be named")["tasks"][0]
    # A master that does not answer in time is not waited for: its job is shown as the log knows it.
    shown = lambda: penstock_here("info", job_id, "--cluster", cluster.rest_url).stdout  # noqa: E731
    until(lambda: "in work" in shown(), "the command line to name it", shown)
    # Heartbeats go on: the task manager is known and the other slot serves others.
    assert sql(cluster, "SELECT 1").returncode == 0
    done = penstock_here("cancel", job_id, "--cluster", cluster.rest_url)
    assert done.returncode == 0
    assert client.job(job_id)["state"] == "CANCELED"


# -- room ----------------------------------------------------------------------------------------


def test_too_few_slots_wait_and_say_for_what(
    cluster: EmbeddedCluster, client: ClusterClient, until: Callable[..., Any]
) -> None:
    job_id = client.submit({"sql": GEN + "SELECT a FROM g", "parallelism": 5})

    def missing() -> str | None:
        word = client.job(job_id)["waiting-for"] or ""
        return word if "missing" in word and "the cluster has" in word else None

    waiting = until(missing, "a word on what is missing")
    assert "5 of 5 slots are missing" in waiting
    assert "taskmanager.numberOfTaskSlots" in waiting
    shown = lambda: penstock_here("info", job_id, "--cluster", cluster.rest_url).stdout  # noqa: E731
    # How many are free may be another number by now.
    first, last = waiting.partition("; the cluster has")[0], waiting.partition(" free. ")[2]
    until(lambda: first in (text := shown()) and last in text, "the command line to say so", shown)
    assert penstock_here("cancel", job_id, "--cluster", cluster.rest_url).returncode == 0


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = penstock("up", "--port", str(port))
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert "another port" in done.stderr


def test_a_cluster_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = penstock("list", "--cluster", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert "penstock up" in done.stderr


def test_the_loop_is_free(cluster: EmbeddedCluster) -> None:
    """After all that: the same processes, none restarted."""
    assert [c.starts for c in cluster.children] == [1] * len(cluster.children)
    assert asyncio.run(_pings(cluster.nats_url))


async def _pings(url: str) -> bool:
    connection = await nats.connect(url)
    await connection.flush()
    await connection.close()
    return True
