"""``penstock dev``: a saved file is the job's next version, with the state of what did not change."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.dev import forget_modules, planned, run_dev, stamps_of
from penstock.errors import SpecError

SCRIPT = """
SET 'execution.runtime-mode' = 'STREAMING';
CREATE TABLE orders (id BIGINT, region AS CAST(MOD(id, 2) AS STRING)) WITH ('connector' = 'datagen',
  'rows-per-second' = '40', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '100000000');
CREATE TABLE totals (version STRING, region STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO totals SELECT 'VERSION', region, COUNT(*) FROM orders GROUP BY region;
"""


def test_a_query_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text("SELECT 1")
    with pytest.raises(SpecError, match="write their rows"):
        planned(tmp_path / "job.sql", {})


def test_a_file_of_another_kind_is_refused_before_a_cluster_starts(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a program or a script"):
        run_dev(tmp_path / "job.yaml", cluster=None, config={}, reload=True)


def test_modules_beside_the_file_are_imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "words_of_dev.py"
    module.write_text("N = 1")
    import words_of_dev

    assert words_of_dev.N == 1
    before = stamps_of(tmp_path / "job.sql")
    module.write_text("N = 22")
    assert stamps_of(tmp_path / "job.sql") != before
    forget_modules(tmp_path)
    assert "words_of_dev" not in sys.modules


@pytest.mark.cluster
def test_saved_versions_go_on_with_their_state(tmp_path: Path) -> None:
    script, out = tmp_path / "job.sql", tmp_path / "out"
    script.write_text(SCRIPT.replace("VERSION", "one"))
    with out.open("wb") as printed:
        command = [sys.executable, "-m", "penstock.cli.main", "dev", str(script)]
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
        try:
            wait_for(process, out, lambda: totals(out, "one") >= 40)

            script.write_text(SCRIPT.replace("VERSION", "two"))
            wait_for(process, out, lambda: totals(out, "two") > 0)
            first = re.search(r"\+U\[two, \d, (\d+)\]", out.read_text())
            assert first is not None, "the second version updates what the first has counted"
            first_count = int(first[1])
            assert first_count > totals(out, "one") - 5
            assert "keeps its state: Enumerator: orders, Source: orders, GroupAggregate" in out.read_text()

            script.write_text(SCRIPT.replace("COUNT(*)", "COUNT(nothing)"))
            wait_for(process, out, lambda: "the version before runs on" in out.read_text())
            assert "unknown column 'nothing'" in out.read_text()

            changed = SCRIPT.replace("VERSION", "three").replace("FROM orders", "FROM orders WHERE id > 1")
            script.write_text(changed)
            wait_for(process, out, lambda: totals(out, "three") > 0)
            assert "changed, begins anew: GroupAggregate" in out.read_text()
            anew = re.search(r"(..)\[three, \d, (\d+)\]", out.read_text())
            assert anew is not None
            assert anew[1] == "+I"
            assert int(anew[2]) < first_count
        finally:
            process.terminate()  # SIGINT is ignored where the tests run in the background of a shell
            process.wait(60)
    assert "canceled]" in out.read_text()


def totals(out: Path, version: str) -> int:
    """The greatest count that a version has printed."""
    return max(map(int, re.findall(rf"\[{version}, \d, (\d+)\]", out.read_text())), default=0)


def wait_for(process: subprocess.Popen[bytes], out: Path, condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, out.read_text()
        time.sleep(0.05)
