"""Dead letters that cannot be sent again now: the task goes on, and their request is tried again."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ConnectorError, ExternalError, PenstockError
from penstock.messages.layout import replays_prefix
from penstock.runtime.replays import Replays
from penstock.store.memory import MemoryStore


class _Source:
    """Fails once, then reads the letters."""

    def __init__(self, failure: PenstockError) -> None:
        self._failures = [failure]

    async def replayed(self, letters: Any) -> list[Any]:
        if self._failures:
            raise self._failures.pop()
        return []


@pytest.mark.parametrize("failure", [ExternalError("away"), ConnectorError("another format")])
async def test_a_request_that_fails_is_tried_again(failure: PenstockError) -> None:
    store = MemoryStore()
    await store.put("letters", b"")
    await store.put(f"{replays_prefix('job', 'uid')}request", json.dumps({"letters": "letters"}).encode())
    sent = asyncio.Event()
    task: Any = SimpleNamespace(do=lambda steps: sent.set())
    settings = {"table.exec.dead-letter.replay-interval": "1 ms"}
    replays = Replays(task, SimpleNamespace(job_id="job", store=store, config=settings))  # type: ignore[arg-type]
    node: Any = SimpleNamespace(node=SimpleNamespace(uid="uid", name="source"))
    replays._done["uid"] = set()
    watching = asyncio.create_task(replays._watch(node, _Source(failure), store))  # type: ignore[arg-type]
    await asyncio.wait(
        {watching, asyncio.create_task(sent.wait())}, return_when=asyncio.FIRST_COMPLETED, timeout=60
    )
    assert sent.is_set()
    watching.cancel()
