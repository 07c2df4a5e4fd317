"""PyFlink's examples of tables, and those that never end by themselves: ``PENSTOCK_PYFLINK`` names the folder that its wheel is unpacked in.

They run on the streaming engine in this process. One thing is replaced where a source is endless: it has a number of rows.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.compat import pyflink
from penstock.errors import FunctionError
from penstock.table import StreamTableEnvironment, TableEnvironment, running
from tests.compat.suite import LocalClient

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.environ.get("PENSTOCK_PYFLINK")
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="PENSTOCK_PYFLINK names no folder with PyFlink's wheel"
)
_ENDLESS = re.compile(r"\.option\('rows-per-second', '\d+'\)")
ROWS = 20


def _day(*seconds: int) -> str:
    return ", ".join(
        f"1970-01-01T00:00:{s:02}Z" if s >= 0 else f"1969-12-31T23:59:{60 + s}Z" for s in seconds
    )


def _window(name: str, value: str, start: int, end: int) -> str:
    return f"+I[{name}, {value}, {_day(start, end)}]"


#: The printed lines, without their order.
PRINTED = {
    "over_window": [
        "+I[Alice, 110.1]", "+I[Alice, 110.1]", "+I[Alice, 110.1]", "+I[Alice, 20.1]", "+I[Bob, 30.2]",
        "+I[Bob, 53.1]", "+I[Bob, 53.1]", "+I[Bob, 53.1]",
    ],
    "session_window": [
        _window("Alice", "130.1", 1, 8), _window("Alice", "20.1", 10, 15), _window("Bob", "99.4", 2, 13),
    ],
    "sliding_window": [
        _window("Alice", "110.1", -2, 3), _window("Alice", "130.1", 0, 5), _window("Alice", "33.1", 2, 7),
        _window("Alice", "13.1", 4, 9), _window("Alice", "20.1", 6, 11), _window("Alice", "20.1", 8, 13),
        _window("Alice", "20.1", 10, 15), _window("Bob", "53.1", -2, 3), _window("Bob", "86.4", 0, 5),
        _window("Bob", "86.4", 2, 7), _window("Bob", "46.300003", 4, 9), _window("Bob", "16.1", 6, 11),
    ],
    "tumble_window": [
        _window("Alice", "130.1", 0, 5), _window("Alice", "13.1", 5, 10), _window("Alice", "20.1", 10, 15),
        _window("Bob", "86.4", 0, 5), _window("Bob", "16.1", 5, 10),
    ],
    "pandas_udaf": [
        _window("Alice", "65.05", 0, 5), _window("Alice", "13.1", 5, 10), _window("Alice", "20.1", 10, 15),
        _window("Bob", "28.800001", 0, 5), _window("Bob", "16.1", 5, 10),
    ],
}  # fmt: skip


@pytest.fixture
def module_tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pyflink.install()
    monkeypatch.setattr("penstock.api.execution.submit", lambda graph, config: LocalClient(graph))
    monkeypatch.setattr(running, "submit", lambda graph, config: LocalClient(graph))
    for kind in (TableEnvironment, StreamTableEnvironment):
        monkeypatch.setattr(kind, "create", _on_the_streaming_engine(kind.create))
    yield
    pyflink.uninstall()


def _on_the_streaming_engine(create: Any) -> Any:
    def made(*args: Any, **named: Any) -> Any:
        env = create(*args, **named)
        env.get_config().set("execution.engine", "streaming")
        return env

    return staticmethod(made)


def run(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines that the example prints. Its copy in ``folder`` ends after ``ROWS`` rows of a source."""
    assert FOLDER is not None
    source = Path(FOLDER) / "pyflink" / "examples" / name
    file = folder / source.name
    file.write_text(_ENDLESS.sub(f".option('number-of-rows', '{ROWS}')", source.read_text()))
    monkeypatch.setattr(sys, "argv", [str(file)])
    runpy.run_path(str(file), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if not line.startswith(("Printing result", "Executing", "Use --"))]


@pytest.mark.parametrize("name", PRINTED)
def test_windows(
    name: str,
    module_tree: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = "pandas" if name == "pandas_udaf" else "windowing"
    assert sorted(run(f"table/{folder}/{name}.py", tmp_path, monkeypatch, capsys)) == sorted(PRINTED[name])


@pytest.mark.parametrize(
    ("name", "line", "count"),
    [
        ("table/mixing_use_of_datastream_and_table.py", r"\+I\[-?\d+\]", 10),
        ("datastream/streaming_word_count.py", r"\(\w+,\d+\)", ROWS),
        (
            "datastream/asyncio/remote_model_inference.py",
            r'\{"user_id": -?\d+, "comments": ".+", "analysis_result": .+\}',
            ROWS,
        ),
        ("table/pandas/conversion_from_dataframe.py", r"\d+ +0\.\d+ +0\.\d+", 10),
        ("table/async/async_scalar_function.py", r"\| \+I \| .*(db_value_for_|Product ).* \|", 20),
    ],
)
def test_random_rows(
    name: str, line: str, count: int, module_tree: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    lines = run(name, tmp_path, monkeypatch, capsys)
    assert len([text for text in lines if re.fullmatch(line, text)]) == count, lines


def test_words_of_an_endless_source_are_counted(
    module_tree: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: dict[str, int] = {}
    for text in run("table/streaming_word_count.py", tmp_path, monkeypatch, capsys):
        found = re.fullmatch(r"(\+I|\+U|-U)\[(\w+), (\d+)\]", text)
        assert found, text
        if found[1] != "-U":
            counts[found[2]] = int(found[3])
    assert sum(counts.values()) == ROWS


def test_the_basic_operations_end_where_the_example_itself_is_wrong(
    module_tree: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``from pyflink.table.expressions import *`` replaces its module ``json`` by the function ``json``, in PyFlink, too."""
    with pytest.raises(FunctionError, match="'function' object has no attribute 'loads'"):
        run("table/basic_operations.py", tmp_path, monkeypatch, capsys)
    assert capsys.readouterr().out.count("rows in set") == 8
