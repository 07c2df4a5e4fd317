import tempfile
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from services.taskmanager.data_port import DataPort
from services.taskmanager.folders import LOGS_KEPT, Folders
from services.taskmanager.slot_table import SlotTable
from services.taskmanager.slots import Settings


def test_a_killed_one_is_swept_by_the_next(tmp_path):
    dead = Folders(str(tmp_path), "tm-1")
    alive = Folders(str(tmp_path), "tm-2")
    for folders in (dead, alive):
        folders.slot("a1", 1)[0].mkdir()
        folders.slot("a1", 1)[1].write_text("log")
        folders.socket_path().touch()
    dead._lock.close()  # as the kernel does at its end
    Folders(str(tmp_path), "tm-3")
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file() or "a1" in p.name)
    assert left == [
        ".taskmanagers",
        "tm-1/log/a1-1.log",
        "tm-2/data.sock",
        "tm-2/lock",
        "tm-2/log/a1-1.log",
        "tm-2/slots/a1-1",
        "tm-3/lock",
    ]


def test_two_of_one_name_are_refused(tmp_path):
    first = Folders(str(tmp_path), "tm-1")
    with pytest.raises(ExternalError, match="another process uses the folder"):
        Folders(str(tmp_path), "tm-1")
    first.remove()
    Folders(str(tmp_path), "tm-1").remove()


def test_a_temporary_folder_is_wholly_removed():
    folders = Folders("", "tm-1")
    folders.slot("a1", 1)[1].write_text("log")
    folders.remove()
    assert not folders.path.parent.exists()


def test_the_socket_is_in_its_own_folder_however_long_its_path(tmp_path, monkeypatch):
    """Elsewhere, nobody would sweep what a killed one leaves."""
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    folders = Folders(str(tmp_path / ("x" * 100)), "tm-1")
    port = DataPort(SlotTable(1, Settings()), lambda _: None)
    port.open("127.0.0.1", 0, folders.socket_path())
    assert port.unix_path == str(folders.path / "data.sock")
    assert (folders.path / "data.sock").is_socket()
    assert list(elsewhere.iterdir()) == []
    port.close()
    assert not (folders.path / "data.sock").exists()
    folders.remove()


def test_a_socket_that_cannot_be_made_is_named(tmp_path):
    port = DataPort(SlotTable(1, Settings()), lambda _: None)
    for gone in (tmp_path / "gone" / "data.sock", tmp_path / ("x" * 100) / "data.sock"):
        with pytest.raises(ExternalError, match="Unix socket") as err:
            port.open("127.0.0.1", 0, gone)
        assert err.value.where == str(gone)


def test_old_logs_go(tmp_path):
    folders = Folders(str(tmp_path), "tm-1")
    for n in range(LOGS_KEPT + 5):
        folders.slot("a", n)[1].write_text("log")
    assert len(list((tmp_path / "tm-1" / "log").iterdir())) <= LOGS_KEPT + 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ExternalError, match="cannot make the folder") as err:
        Folders(str(Path(file)), "tm-1")
    assert err.value.where == "io.tmp.dirs"
