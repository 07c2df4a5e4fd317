"""The log folder of a task manager: listed, read in pieces, bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import SpecError
from penstock_services.taskmanager import log_files as logs
from penstock_services.taskmanager.folders import Folders


def written(path: Path, text: str, at_s: float) -> Path:
    path.write_text(text)
    os.utime(path, (at_s, at_s))
    return path


def test_files_are_listed_in_the_order_of_their_last_lines(tmp_path: Path) -> None:
    written(tmp_path / "j.a-1.10.log", "xy", 5)
    written(tmp_path / "j.a-1.9.log", "abc", 5)
    written(tmp_path / "taskmanager.log", "", 3.25)
    (tmp_path / "folder").mkdir()
    found = [(f.name, f.size, f.mtime_ms) for f in logs.log_files(tmp_path)]
    assert found == [("taskmanager.log", 0, 3250), ("j.a-1.9.log", 3, 5000), ("j.a-1.10.log", 2, 5000)]


def test_a_file_is_read_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    data = os.urandom(2 * logs.MAX_PIECE_BYTES + 10)
    (tmp_path / "j.a-1.log").write_bytes(data)
    got, sizes = b"", []
    while piece := logs.log_piece(tmp_path, "j.a-1.log", len(got), 10**9):
        if not piece.data:
            break
        assert piece.size == len(data)
        got += piece.data
        sizes.append(len(piece.data))
    assert got == data
    assert sizes == [logs.MAX_PIECE_BYTES, logs.MAX_PIECE_BYTES, 10]
    assert logs.log_piece(tmp_path, "j.a-1.log", 10**12, 5).data == b""


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret", "/etc/passwd", "a/../../secret", "no.log", "x" * 9000]
)
def test_only_files_of_the_folder_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "log").mkdir()
    with pytest.raises(SpecError, match="no such log file"):
        logs.log_piece(tmp_path / "log", name, 0, 100)


def test_a_link_to_somewhere_else_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "j.a-1.log").symlink_to(tmp_path / "secret")
    assert logs.log_files(tmp_path / "log") == []
    with pytest.raises(SpecError):
        logs.log_piece(tmp_path / "log", "j.a-1.log", 0, 100)


def test_of_ended_slots_the_latest_are_kept_and_running_ones_always(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "ENDED_KEPT", 2)
    for n in range(5):
        written(tmp_path / f"j.a-{n}.log", "log", 100 + n)
        written(tmp_path / f"j.a-{n}.1.log", "log", 100 + n)
    written(tmp_path / "taskmanager.log", "log", 1)
    logs.forget_outputs(tmp_path, frozenset({"j.a-0"}))
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"taskmanager.log"} | {f"j.a-{n}{part}.log" for n in (0, 3, 4) for part in ("", ".1")}


def test_ended_slots_keep_no_more_than_their_bytes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "ENDED_KEPT_BYTES", 10)
    for n in range(5):
        written(tmp_path / f"j.a-{n}.log", "four", 100 + n)
    logs.forget_outputs(tmp_path, frozenset())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["j.a-3.log", "j.a-4.log"]


def test_output_past_python_is_emptied_beyond_twice_its_bound(tmp_path: Path) -> None:
    first = tmp_path / "j.a-1.log"
    assert logs.emptied(first, 10) == 0
    first.write_text("x" * 10)
    second = tmp_path / "j.a-1.1.log"
    with second.open("ab") as file:
        file.write(b"x" * 20)
        file.flush()
        assert logs.emptied(first, 10) == 0
        file.write(b"x")
        file.flush()
        assert logs.emptied(first, 10) == 21
        file.write(b"goes on")
    assert (first.stat().st_size, second.read_text()) == (10, "goes on")


def test_the_output_of_a_slot_that_runs_is_never_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "ENDED_KEPT", 1)
    folders = Folders(str(tmp_path), "tm-1")
    runs, runs_log = folders.slot("j", "a", 0)
    written(runs_log, "quiet", 1)
    for n in range(1, 5):
        local, log = folders.slot("j", "a", n)
        written(log, "log", n)
        folders.remove_slot(local)
    folders.slot("j", "a", 5)
    assert {path.name for path in folders.logs.iterdir()} == {"j.a-0.log", "j.a-4.log"}
    folders.remove_slot(runs)
    folders.slot("j", "a", 6)
    assert {path.name for path in folders.logs.iterdir()} == {"j.a-4.log"}


def test_a_link_in_place_of_a_log_reaches_no_other_file(tmp_path: Path) -> None:
    """A slot may write into the folder of logs, but not to what it names there."""
    other = written(tmp_path / "other", "x" * 100, 1)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "j.a-1.log").symlink_to(other)
    assert logs.emptied(tmp_path / "log" / "j.a-1.log", 10) == 0
    assert other.read_text() == "x" * 100
    with pytest.raises(SpecError):
        logs.log_piece(tmp_path / "log", "j.a-1.log", 0, 10)
