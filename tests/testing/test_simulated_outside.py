"""What simulated jobs write to: a folder that loses its power, a NATS server that dies."""

from __future__ import annotations

import os
import random

import nats.errors
import pytest
from nats.aio.client import Client

from penstock.testing.simulation import FolderServer, Listener, NatsFaults, SimNats, World, virtual_time
from penstock.testing.simulation.folder import LossyFolder

NATS = ("nats", 4222)


def process(world):
    async def main(_):
        return None

    return world.spawn("writer", main)


class TestFolder:
    def test_what_the_local_store_wrote_survives_whatever_the_disk_had_left_to_do(self, tmp_path):
        for seed in range(20):
            world = World(seed)
            server = FolderServer(world, tmp_path / str(seed))
            writer = process(world)
            server.write(writer, "a/b/c", b"old")
            server.write(writer, "a/b/c", b"new")
            assert server.create(writer, "a/d", b"first")
            assert not server.create(writer, "a/d", b"second")
            server.power_fails(random.Random(seed))
            assert server.objects == {"a/b/c": b"new", "a/d": b"first"}

    def test_what_was_not_synced_is_there_or_not(self, tmp_path):
        found = set()
        for seed in range(60):
            folder = LossyFolder(tmp_path / str(seed))
            (folder.root / "kept").write_bytes(b"kept")
            folder.synced(folder.root / "kept")
            folder.synced(folder.root)
            (folder.root / "kept").write_bytes(b"changed")
            (folder.root / "loose").write_bytes(b"loose")
            folder.power_fails(random.Random(seed))
            found.add((folder.root / "loose").read_bytes() if (folder.root / "loose").exists() else None)
            assert (folder.root / "kept").read_bytes() == b"kept"
        assert found == {None, b"", b"lo", b"loose"}

    def test_a_name_is_as_it_was_when_its_folder_was_synced(self, tmp_path):
        folder = LossyFolder(tmp_path / "f")
        for name in ("one", "two"):
            (folder.root / name).write_bytes(name.encode())
            folder.synced(folder.root / name)
        folder.synced(folder.root)
        os.replace(folder.root / "two", folder.root / "one")
        never = type("Never", (random.Random,), {"random": lambda self: 1.0})(1)
        folder.power_fails(never)
        assert {p.name: p.read_bytes() for p in folder.root.iterdir()} == {"one": b"one", "two": b"two"}


class Served:
    """A NATS server in a world; ``start`` again after a kill."""

    def __init__(self, seed):
        self.world = World(seed)
        self.listener = None
        self.nats = SimNats(self.world, self._listen)
        self.nats.jetstream.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "allow_atomic": True})
        self.world.dial = lambda process, host, port: self.listener.connect(process)
        self.start()

    def _listen(self, process):
        self.listener = Listener(process)
        return self.listener

    def start(self):
        self.process = self.world.spawn("nats", self.nats.main)

    def run(self, main):
        async def wrapped(_):
            client = Client()
            await client.connect("nats://nats:4222", reconnect_time_wait=0.1, max_reconnect_attempts=-1)
            await main(client)
            await client.close()
            self.world.stop()

        with virtual_time(self.world):
            self.world.after(0.1, lambda: self.world.spawn("client", wrapped))
            self.world.run(60)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_batch_whose_server_dies_before_its_end_is_not_there(seed):
    served = Served(seed)

    async def main(client):
        for number in (1, 2):
            await client.publish(
                "S.a", b"x", headers={"Nats-Batch-Id": "n", "Nats-Batch-Sequence": str(number)}
            )
        await client.flush()
        served.world.kill(served.process)
        served.start()
        commit = {"Nats-Batch-Id": "n", "Nats-Batch-Sequence": "3", "Nats-Batch-Commit": "1"}
        while True:
            try:
                reply = await client.request("S.m", b"x", headers=commit, timeout=1)
                break
            except (nats.errors.Error, TimeoutError):
                continue
        assert b"10176" in reply.data

    served.run(main)
    assert served.nats.jetstream.streams["S"].messages == []


def test_an_answer_that_is_lost_was_stored_all_the_same():
    served = Served(1)
    served.nats.faults = NatsFaults(lose=1.0)

    async def main(client):
        with pytest.raises(nats.errors.TimeoutError):
            await client.request("S.a", b"x", timeout=1)

    served.run(main)
    assert [m.data for m in served.nats.jetstream.streams["S"].messages] == [b"x"]
