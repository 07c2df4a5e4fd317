"""A process that writes two epochs to Kafka exactly once and kills itself at a step of the second commit.

``python killed_writer.py BOOTSTRAP TOPIC STEP FOLDER``: what the checkpoint holds lies in FOLDER afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from penstock.connectors.kafka.producer import KafkaProducer
from penstock.connectors.staging import decode_committables
from tests.connectors.conftest import Harness
from tests.connectors.kafka import test_kafka_exactly_once as case


def kill_behind(name: str) -> None:
    """The process ends behind the next call of that method."""
    inner = getattr(KafkaProducer, name)

    async def killed(self: KafkaProducer, *args: object) -> object:
        found = await inner(self, *args)
        os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(KafkaProducer, name, killed)


class _Client:
    """A client whose next call of one name is the process's last."""

    def __init__(self, inner: object, name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> object:
        call = getattr(self._inner, name)
        if name != self._name:
            return call

        def last(*args: object) -> None:
            call(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        return last

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]


async def main(bootstrap: str, topic: str, step: str, folder: Path) -> None:
    server = type("Server", (), {"bootstrap": bootstrap})
    harness = Harness()
    writer = await harness.writer(case.SCHEMA, case.table(server, topic))
    writer.write(case.batch(0, 1000))
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    writer.write(case.batch(1000, 2000))
    [state] = await writer.begin_checkpoint(2)
    (folder / "state").write_bytes(state)
    for item in decode_committables(state):
        for key, _ in item.objects:
            (folder / key.replace("/", "_")).write_bytes(await harness.store.get(key))
    if step == "begin_epoch":
        for transactions in writer._transactions.values():
            await transactions.forget()
    if step in ("begin_epoch", "begin", "flush"):
        kill_behind(step)
    elif step == "half":
        KafkaProducer.drain = killed_drain  # type: ignore[method-assign]
    else:
        [transactions] = writer._transactions.values()
        producer = await transactions.take_over()
        called = {"offsets": "send_offsets_to_transaction", "commit": "commit_transaction"}[step]
        producer._client = _Client(producer._client, called)  # type: ignore[assignment]
    await writer.commit(2)


async def killed_drain(self: KafkaProducer) -> None:
    await asyncio.to_thread(self._client.flush, 30)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
