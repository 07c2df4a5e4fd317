"""PyFlink's own examples, as they are: ``PENSTOCK_PYFLINK`` names the folder that PyFlink's wheel is unpacked in.

Each runs as ``penstock run`` would run it, its jobs on the streaming engine in this process, and prints what it should.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.api import execution
from penstock.compat import pyflink
from penstock.errors import PenstockError
from penstock.testing.harness import run_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph import JobGraph

FOLDER = os.environ.get("PENSTOCK_PYFLINK")
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="PENSTOCK_PYFLINK names no folder with PyFlink's wheel"
)

#: The printed lines, without their order.
PRINTED = {
    "process_json_data.py": [
        "(2, {'name': 'hello', 'tel': 136, 'addr': {'country': 'China', 'city': 'Shanghai'}})",
        "(4, {'name': 'PyFlink', 'tel': 33, 'addr': {'country': 'China', 'city': 'Hangzhou'}})",
    ],
    "basic_operations.py": [
        """(1, '{"name": "Flink", "tel": 124, "addr": {"country": "Germany", "city": "Berlin"}}')""",
        """(2, '{"name": "hello", "tel": 136, "addr": {"country": "China", "city": "Shanghai"}}')""",
        """(3, '{"name": "world", "tel": 125, "addr": {"country": "USA", "city": "NewYork"}}')""",
        """(4, '{"name": "PyFlink", "tel": 33, "addr": {"country": "China", "city": "Hangzhou"}}')""",
        """(1, '{"name": "Flink", "tel": 124, "addr": {"country": "Germany", "city": "Berlin"}}')""",
        "('Germany', 123)",
        "('China', 135)",
        "('USA', 124)",
        "('China', 167)",
    ],
    "windowing/session_with_dynamic_gap_window.py": ["(hi,1,30,7)"],
    "windowing/session_with_gap_window.py": ["(hi,1,14,6)", "(hi,15,20,1)"],
    "windowing/sliding_time_window.py": [
        "(hi,-2,3,2)", "(hi,0,5,4)", "(hi,2,7,4)", "(hi,4,9,3)", "(hi,6,11,2)", "(hi,8,13,2)", "(hi,12,17,1)",
        "(hi,14,19,1)",
    ],
    "windowing/tumbling_count_window.py": ["(hi,4)", "(hello,6)", "(hello,12)"],
    "windowing/tumbling_time_window.py": ["(hi,0,5,4)", "(hi,5,10,3)", "(hi,15,20,1)"],
}  # fmt: skip
#: Last sums: they are floats of 32 bits that state keeps as they were.
SUMS = {"Alice": 163.3, "Bob": 102.5}


@pytest.fixture
def module_tree() -> Iterator[None]:
    pyflink.install()
    yield
    pyflink.uninstall()
    execution.record_with(None)


def run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
) -> list[str]:
    """The lines that the example prints."""
    assert FOLDER is not None
    file = str(Path(FOLDER) / "pyflink" / "examples" / "datastream" / name)
    monkeypatch.setattr(sys, "argv", [file, *args])
    graphs: list[JobGraph] = []
    execution.record_with(graphs.append)
    runpy.run_path(file, run_name="__main__")
    assert graphs
    for graph in graphs:
        run_graph(graph)
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if not line.startswith(("Printing result", "Executing", "Use --"))]


@pytest.mark.parametrize("name", PRINTED)
def test_it_prints_what_it_should(
    name: str, module_tree: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(run(name, monkeypatch, capsys)) == sorted(PRINTED[name])


@pytest.mark.parametrize("name", ["state_access.py", "event_time_timer.py"])
def test_the_last_sums(
    name: str, module_tree: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(name, monkeypatch, capsys)
    assert len(lines) == 8
    assert {key: pytest.approx(value) for key, value in map(eval, lines)} == SUMS


def test_words_are_counted_from_a_file_into_files(
    tmp_path: Path, module_tree: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("to be or\nnot to be\n")
    out = tmp_path / "out"
    args = ("--input", str(tmp_path / "text"), "--output", str(out))
    assert run("word_count.py", monkeypatch, capsys, *args) == []
    files = [file for file in out.iterdir() if file.is_file()]
    assert all(file.name.startswith("prefix-") and file.name.endswith(".ext") for file in files)
    assert sorted(line for file in files for line in file.read_text().splitlines()) == [
        "(be,2)", "(not,1)", "(or,1)", "(to,2)",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["connectors/elasticsearch.py", "connectors/pulsar.py"])
def test_a_connector_that_is_not_there_is_refused_by_name(
    name: str, module_tree: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PenstockError, match=Path(name).stem):
        run(name, monkeypatch, capsys)
