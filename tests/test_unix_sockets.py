import asyncio
import os
import socket
from pathlib import Path

import pytest
import uvloop

from penstock.messages.slot import SlotAddress
from penstock.runtime.network.hub import open_socket
from penstock.unix_sockets import MAX_ADDRESS_BYTES, unix_address


def path_of(folder: Path, length: int) -> str:
    """Below ``folder``, of so many bytes."""
    deep = folder / ("d" * (length - len(os.fsencode(folder)) - len("//s")))
    deep.mkdir()
    return str(deep / "s")


@pytest.mark.parametrize("length", [MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES + 1, 250])
def test_a_socket_at_a_path_of_any_length(length: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = path_of(tmp_path_factory.mktemp("u"), length)
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as calling:
        with unix_address(path) as address:
            assert (address == path) == (length == MAX_ADDRESS_BYTES)
            listening.bind(address)
        assert Path(path).is_socket()
        listening.listen()
        with unix_address(path) as address:
            calling.connect(address)
        with listening.accept()[0] as taken:
            calling.sendall(b"x")
            assert taken.recv(1) == b"x"


@pytest.mark.parametrize("length", [MAX_ADDRESS_BYTES + 1, 250])
def test_a_system_without_descriptors_of_folders(
    length: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS: the folder is reached by a link, which is gone afterwards."""
    monkeypatch.delattr(os, "O_PATH")
    path = path_of(tmp_path_factory.mktemp("u"), length)
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as calling:
        with unix_address(path) as address:
            listening.bind(address)
        assert not Path(address).parent.parent.exists()
        listening.listen()
        with unix_address(path) as address:
            calling.connect(address)
        listening.accept()[0].close()
    with pytest.raises(FileNotFoundError), unix_address(str(Path(path).parent / "none" / "s")):
        pass


def test_no_descriptor_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, close = [], os.close
    monkeypatch.setattr(os, "close", lambda fd: (closed.append(fd), close(fd)))
    with pytest.raises(ZeroDivisionError), unix_address(path_of(tmp_path, 200)) as address:
        raise ZeroDivisionError
    assert f"/proc/self/fd/{closed[-1]}/s" == address


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), unix_address(str(tmp_path / ("x" * 120) / "s")):
        pass


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_slots_reach_each_other_at_a_long_path(new_loop, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = path_of(tmp_path_factory.mktemp("u"), 200)
    address = SlotAddress(allocation_id="b", taskmanager_id="t", host="127.0.0.1", port=9, unix_path=path)
    with asyncio.Runner(loop_factory=new_loop) as runner, socket.socket(socket.AF_UNIX) as listening:
        with unix_address(path) as bound:
            listening.bind(bound)
        listening.listen()
        with runner.run(open_socket(address)) as sock:
            assert sock.family == socket.AF_UNIX
