"""The pytest fixture ``penstock``: jobs fed by hand, with checkpoints, crashes and a clock of the test's own."""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.api import Sink, StreamExecutionEnvironment, Types
from penstock.errors import PenstockError, SpecError
from penstock.testing.mini_cluster import MiniCluster
from penstock.testing.pytest_plugin import penstock  # noqa: F401  (in a project, pytest finds the plugin by itself)
from penstock.types import RowKind


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 0, 0, second)


def test_rows_survive_a_kill_in_the_middle(penstock: MiniCluster) -> None:  # noqa: F811
    orders = penstock.table("orders", "customer INT, cents BIGINT")
    job = penstock.sql("SELECT customer, SUM(cents) AS total FROM orders GROUP BY customer")
    orders.send((1, 10), {"customer": 2, "cents": 5}, (1, 7))
    assert job.rows() == [(1, 17), (2, 5)]
    orders.send((2, 100))
    job.kill()  # the last row may have been counted, but no checkpoint holds it: it is read again
    job.restore(parallelism=3)
    orders.send((2, 1))
    assert job.rows() == [(1, 17), (2, 106)]


def test_windows_fire_as_event_time_passes_and_late_rows_are_counted(penstock: MiniCluster) -> None:  # noqa: F811
    clicks = penstock.table("clicks", "at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND")
    job = penstock.sql(
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end"
    )
    clicks.send((at(1),), (at(2),))
    assert job.rows() == []
    clicks.send((at(11),))
    assert job.rows() == [(at(0), 2)]
    clicks.send((at(3),))
    assert job.rows() == [(at(0), 2)]
    assert job.counter("numLateRecordsDropped") == 1
    clicks.finish()
    assert job.rows() == [(at(0), 2), (at(10), 1)]


def test_what_is_written_shows_when_its_checkpoint_is_complete(penstock: MiniCluster) -> None:  # noqa: F811
    source = penstock.table("source", "id INT, n BIGINT")
    sink = penstock.table("sink", "id INT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED")
    job = penstock.sql("INSERT INTO sink SELECT id, MAX(n) FROM source GROUP BY id")
    source.send((1, 5))
    assert sink.rows == []
    job.checkpoint()
    assert sink.changes == [(RowKind.INSERT, (1, 5))]


def test_a_changelog_goes_in_and_comes_out(penstock: MiniCluster) -> None:  # noqa: F811
    people = penstock.table("people", "id INT, PRIMARY KEY (id) NOT ENFORCED", changelog=True)
    job = penstock.sql("SELECT COUNT(*) FROM people")
    people.send((1,), (2,), kind=RowKind.INSERT)
    assert job.rows() == [(2,)]
    people.send((1,), kind=RowKind.DELETE)
    assert job.rows() == [(1,)]
    assert job.changelog()[-1] == (RowKind.UPDATE_AFTER, (1,))


def test_processing_time_moves_only_by_hand(penstock: MiniCluster) -> None:  # noqa: F811
    pings = penstock.table("pings", "n INT, seen AS PROCTIME()")
    job = penstock.sql(
        "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE pings, DESCRIPTOR(seen), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    pings.send((1,), (2,))
    assert job.rows() == []
    penstock.advance(60_000)
    assert job.rows() == [(2,)]


def test_a_python_program(penstock: MiniCluster) -> None:  # noqa: F811
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection(["a b", "b"], type_info=Types.STRING())
    pairs = words.flat_map(lambda s: [(w, 1) for w in s.split()], Types.TUPLE([Types.STRING(), Types.INT()]))
    out = penstock.table("out", "word STRING, n INT")
    pairs.key_by(lambda p: p[0], Types.STRING()).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(
        Sink.connector("memory", {"name": "out"})
    )
    job = penstock.program(env)
    job.wait()
    assert sorted(out.rows)[-1] == ("b", 2)


def test_errors_name_the_place(penstock: MiniCluster) -> None:  # noqa: F811
    orders = penstock.table("orders", "id INT, cents BIGINT")
    with pytest.raises(SpecError, match="does not fit"):
        orders.send((1,))
    with pytest.raises(SpecError, match="unknown columns price"):
        orders.send({"id": 1, "price": 2})
    with pytest.raises(SpecError, match="no split 1"):
        orders.send((1, 2), split=1)
    with pytest.raises(SpecError, match="starts no job"):
        penstock.sql("SET 'user.x' = 'y'")
    job = penstock.sql("SELECT 10 / id FROM orders")
    orders.send((0, 1))
    with pytest.raises(PenstockError, match="zero"):
        job.rows()
    job.kill()
    with pytest.raises(SpecError, match="does not run"):
        job.rows()


async def test_an_async_test_is_told_what_to_do(penstock: MiniCluster) -> None:  # noqa: F811
    penstock.table("orders", "id INT")
    with pytest.raises(PenstockError, match="async test"):
        penstock.sql("SELECT id FROM orders")


def test_the_pages_tests_pass_in_a_project(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing-jobs.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for i, block in enumerate(blocks):
        (tmp_path / f"test_page_{i}.py").write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "penstock.testing.pytest_plugin",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    # The plugin is named here, whether or not Penstock is installed with its entry points.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
