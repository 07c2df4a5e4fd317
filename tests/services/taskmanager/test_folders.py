import os
import tempfile
from pathlib import Path

import pytest

import penstock_services.taskmanager.folders as folders_module
from penstock.errors import ExternalError
from penstock.messages.slot import LOCAL_STATE
from penstock_services.taskmanager.data_port import DataPort
from penstock_services.taskmanager.folders import DEAD_KEPT, Folders
from penstock_services.taskmanager.slot_table import SlotTable
from penstock_services.taskmanager.slots import Settings


def used(folders: Folders) -> Folders:
    """With what a task manager at work has in its folder."""
    folders.slot("j", "a1", 1)[0].mkdir()
    folders.slot("j", "a1", 1)[1].write_text("log")
    folders.socket_path().touch()
    (folders.path / LOCAL_STATE).mkdir()
    (folders.path / "spark" / "scratch").mkdir(parents=True)
    for name in ("server.log", "driver-1.sock"):
        (folders.path / "spark" / name).touch()
    return folders


def killed(folders: Folders) -> Path:
    folders._lock.close()  # as the kernel does at its end
    return folders.path


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir() or not any(p.iterdir())}


def test_a_killed_one_is_swept_by_the_next(tmp_path):
    alive = used(Folders(str(tmp_path), "alive"))
    dead = killed(used(Folders(str(tmp_path), "dead")))
    before = files(alive.path)
    Folders(str(tmp_path), "next")
    assert files(dead) == {"lock", "log/j.a1-1.log", "spark/server.log"}
    assert files(alive.path) == before


def test_logs_of_so_many_ended_ones_are_kept(tmp_path):
    """Killed or ended in order, and however old: those of one that lives stay."""
    alive = used(Folders(str(tmp_path), "alive"))
    os.utime(alive.path / "log", (0, 0))
    for n in range(DEAD_KEPT + 4):
        folders = used(Folders(str(tmp_path), f"tm-{n}"))
        if n % 2:
            killed(folders)
        else:
            folders.remove()
            assert files(folders.path) == {"lock", "log/j.a1-1.log", "spark/server.log"}
        os.utime(folders.path / "log", (n, n))
    Folders(str(tmp_path), "last")
    kept = {f"tm-{n}" for n in range(4, DEAD_KEPT + 4)}
    assert {p.parent.name for p in tmp_path.glob("*/lock")} == {"alive", "last", *kept}


def test_what_is_no_folder_of_a_task_manager_stays(tmp_path):
    strangers = [tmp_path / "other" / name for name in ("lock", "log/x.log", "slots/mine", "notes.txt")]
    strangers += [tmp_path / "locked-only" / "lock"]
    for path in strangers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    Folders(str(tmp_path), "tm-1")
    assert [path.read_text() for path in strangers] == ["mine"] * len(strangers)


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_temporary_folders_of_killed_ones_are_swept(temporary):
    alive, dead = used(Folders("", "tm-1")), used(Folders("", "tm-1"))
    before = files(alive.path)
    os.utime(alive.path / "lock", (0, 0))
    killed(dead)
    last = Folders("", "tm-1")
    assert not dead.path.parent.exists()
    assert files(alive.path) == before
    assert sorted(temporary.iterdir()) == sorted([alive.path.parent, last.path.parent])


def test_a_folder_swept_before_its_lock_was_held_is_made_again(temporary, monkeypatch):
    """Another task manager's sweep finds the lock just made, and takes it for a dead one's."""
    real, sweeps = folders_module._locked, []

    def locked(path, mode):
        if mode == "xb" and not sweeps:
            path.touch()
            sweeps.append(path.parent.parent)
            folders_module._sweep_temporary(temporary)
            raise BlockingIOError  # it holds the lock while it removes the folder
        return real(path, mode)

    monkeypatch.setattr(folders_module, "_locked", locked)
    folders = Folders("", "tm-1")
    assert not sweeps[0].exists()
    assert list(temporary.iterdir()) == [folders.path.parent]


def test_another_users_temporary_folder_stays(temporary, monkeypatch):
    dead = killed(used(Folders("", "tm-1")))
    monkeypatch.setattr(folders_module.os, "getuid", lambda: -1)
    Folders("", "tm-2")
    assert dead.exists()


def test_two_of_one_name_are_refused(tmp_path):
    first = Folders(str(tmp_path), "tm-1")
    with pytest.raises(ExternalError, match="another process uses the folder"):
        Folders(str(tmp_path), "tm-1")
    first.remove()
    Folders(str(tmp_path), "tm-1").remove()


def test_a_temporary_folder_is_wholly_removed():
    folders = Folders("", "tm-1")
    folders.slot("j", "a1", 1)[1].write_text("log")
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


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ExternalError, match="cannot make the folder") as err:
        Folders(str(Path(file)), "tm-1")
    assert err.value.where == "io.tmp.dirs"
