"""What slots print, followed in front of an embedded cluster and fetched from a standing one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.logs import Printed
from penstock.embedded.slot_output import LOST, SlotOutput
from penstock.errors import ExternalError
from penstock_services.taskmanager.log_files import log_files


class TestFollowing:
    """``_drain`` is called by hand: the thread waits for its first look."""

    @pytest.fixture
    def log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr("penstock.embedded.slot_output._POLL_S", 3600.0)
        (tmp_path / "tm" / "log").mkdir(parents=True)
        return tmp_path / "tm" / "log"

    def test_lines_are_shown_whole_and_over_the_end_of_a_file(self, log: Path) -> None:
        out = io.StringIO()
        follower = SlotOutput(log.parents[1], out)
        (log / "j.a-1.log").write_text("one\ntw")
        follower._drain(final=False)
        assert out.getvalue() == "one\n"
        with (log / "j.a-1.log").open("a") as file:
            file.write("o\nthr")
        (log / "j.a-1.1.log").write_text("ee\nfour")
        follower._drain(final=False)
        assert out.getvalue() == "one\ntwo\nthree\n"
        assert [path.name for path in log.iterdir()] == ["j.a-1.1.log"]  # what is shown and full goes
        (log / "taskmanager.log").write_text("not a slot's\n")
        follower.stop()
        assert out.getvalue() == "one\ntwo\nthree\nfour\n"

    def test_files_are_taken_in_the_order_of_their_numbers(self, log: Path) -> None:
        for n in range(12):
            (log / f"j.a-1{f'.{n}' if n else ''}.log").write_text(f"{n}\n")
        out = io.StringIO()
        SlotOutput(log.parents[1], out).stop()
        assert out.getvalue() == "".join(f"{n}\n" for n in range(12))

    def test_what_went_before_it_was_shown_is_told(self, log: Path) -> None:
        out = io.StringIO()
        follower = SlotOutput(log.parents[1], out)
        (log / "j.a-1.log").write_text("one\n")
        follower._drain(final=False)
        (log / "j.a-1.log").unlink()
        (log / "j.a-1.3.log").write_text("nine\n")
        follower.stop()
        assert out.getvalue() == f"one\n{LOST}nine\n"


class Client:
    """The part of a ClusterClient that is asked, over folders of task managers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.away: set[str] = set()

    def taskmanagers(self) -> list[dict[str, Any]]:
        return [{"id": path.name} for path in sorted(self.folder.iterdir())]

    def log_files(self, manager: str) -> list[dict[str, Any]]:
        if manager in self.away:
            raise ExternalError("nobody answers")
        return [{"name": f.name, "size": f.size} for f in log_files(self.folder / manager)]

    def log_file(self, manager: str, name: str, offset: int = 0) -> Iterator[bytes]:
        yield (self.folder / manager / name).read_bytes()[offset:]


class TestFetching:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> tuple[Printed, io.BytesIO, Path, Client]:
        for name in ("tm1", "tm2"):
            (tmp_path / name).mkdir()
        client, out = Client(tmp_path), io.BytesIO()
        return Printed(client, "job", out), out, tmp_path, client  # type: ignore[arg-type]

    def test_each_byte_of_the_job_is_shown_once(self, rig) -> None:
        printed, out, folder, _ = rig
        (folder / "tm1" / "job.a-1.log").write_text("one\n")
        (folder / "tm1" / "job2.a-1.log").write_text("another job's\n")
        (folder / "tm1" / "taskmanager.log").write_text("not a slot's\n")
        printed.show_new()
        printed.show_new()
        assert out.getvalue() == b"one\n"
        with (folder / "tm1" / "job.a-1.log").open("a") as file:
            file.write("two\n")
        (folder / "tm1" / "job.a-1.1.log").write_text("three\n")
        (folder / "tm2" / "job.b-1.log").write_text("four\n")
        printed.show_new()
        assert out.getvalue() == b"one\ntwo\nthree\nfour\n"

    def test_what_is_no_longer_kept_is_told(self, rig, capsys: pytest.CaptureFixture[str]) -> None:
        printed, out, folder, _ = rig
        (folder / "tm1" / "job.a-1.2.log").write_text("late\n")
        printed.show_new()
        assert out.getvalue() == b"late\n"
        assert "what was printed before job.a-1.2.log is no longer kept" in capsys.readouterr().err

    def test_a_file_that_was_emptied_is_told(self, rig, capsys: pytest.CaptureFixture[str]) -> None:
        printed, out, folder, _ = rig
        (folder / "tm1" / "job.a-1.log").write_text("a long line\n")
        printed.show_new()
        (folder / "tm1" / "job.a-1.log").write_text("new\n")
        printed.show_new()
        assert out.getvalue() == b"a long line\nnew\n"
        assert "was emptied" in capsys.readouterr().err

    def test_a_task_manager_that_is_away_hides_no_other(
        self, rig, capsys: pytest.CaptureFixture[str]
    ) -> None:
        printed, out, folder, client = rig
        (folder / "tm2" / "job.b-1.log").write_text("two\n")
        client.away = {"tm1"}
        printed.show_new()
        printed.show_new()
        assert out.getvalue() == b"two\n"
        assert capsys.readouterr().err.count("task manager tm1 does not answer") == 1
