"""Start the service on a cluster of its own, and ask it: ``python -m examples.request_reply``"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import nats
from nats.errors import NoRespondersError
from rich.console import Console

from examples.running import penstock
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError

HERE = Path(__file__).parent
SUBJECT = "accounts.deposit"
DEPOSITS = [("ann", 5_00), ("bob", 7_50), ("ann", 2_25), ("bob", -9_00), ("ann", 1_00)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="store_true", help="run job.py in place of job.sql")
    job, console = "job.py" if parser.parse_args(argv).python else "job.sql", Console()
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=1, slots=2, on_event=console.print)
        cluster.start()
    try:
        penstock("run", "--detached", str(HERE / job), "--cluster", cluster.rest_url)
        for question, answer in asyncio.run(asked(cluster.nats_url, DEPOSITS)):
            console.print(f"asked {json.dumps(question)}, answered {json.dumps(answer)}", soft_wrap=True)
    finally:
        cluster.stop()
    return 0


async def asked(
    url: str, deposits: list[tuple[str, int]]
) -> list[tuple[dict[str, object], dict[str, object]]]:
    """Each question with its answer, asked one after the other."""
    client = await nats.connect(url)
    out = []
    try:
        for account, cents in deposits:
            question = {"account": account, "cents": cents}
            answer = await answered(client, json.dumps(question).encode())
            out.append((question, json.loads(answer)))
    finally:
        await client.close()
    return out


async def answered(client: nats.NATS, question: bytes) -> bytes:
    """The answer; until the job listens, NATS says that nobody does."""
    for _ in range(600):
        try:
            return bytes((await client.request(SUBJECT, question, timeout=60)).data)
        except NoRespondersError:
            await asyncio.sleep(0.1)
    raise PenstockError("nobody answers", expected=f"a job that listens to '{SUBJECT}'")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PenstockError as err:
        sys.exit(f"error: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
