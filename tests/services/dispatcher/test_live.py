"""The stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from penstock.errors import SpecError
from penstock_services.common.clock import SystemClock
from penstock_services.common.http_serving import server_config
from penstock_services.dispatcher.live import TOPICS, Live
from tests.services.dispatcher.conftest import serving


async def first_events(front, topics: str, wanted: set[str]) -> dict[str, Any]:
    """The first event of each of the topics."""
    found: dict[str, Any] = {}
    # The client in the same process reads an answer only once it has ended, so this one goes over a socket.
    async with (
        asyncio.timeout(60),
        serving(server_config(front.rest.app())) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}") as client,
        client.stream("GET", f"/stream?topics={topics}") as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found[name] = json.loads(line.removeprefix("data: "))
            if wanted <= set(found):
                break
    return found


async def test_the_stream_begins_with_the_newest_of_each_topic(front) -> None:
    job = await front.submit(name="one")
    topic = f"job:{job}"
    found = await first_events(front, f"overview,{topic},job:none", {"overview", topic, "job:none"})
    assert [row["jid"] for row in found["overview"]["jobs"]] == [job]
    assert [verdict["jid"] for verdict in found["overview"]["why"]] == [job]
    assert found[topic]["job"]["name"] == "one"
    assert found[topic]["checkpoints"]["history"] == []
    assert "none" in found["job:none"]["errors"][0]


@pytest.mark.parametrize(
    "topics", ["nonsense", "job:", ",".join(f"job:{i}" for i in range(TOPICS + 1)), ",,"]
)
async def test_unknown_or_too_many_topics_are_refused(front, topics: str) -> None:
    assert (await front.http.get(f"/stream?topics={topics}")).status_code == 400


async def test_why_over_rest(front) -> None:
    job = await front.submit(name="one")
    found = (await front.http.get(f"/jobs/{job}/why")).json()
    assert (found["jid"], found["name"]) == (job, "one")
    assert [f["code"] for f in found["findings"]] == ["waiting"]
    assert [v["jid"] for v in (await front.http.get("/jobs/why")).json()["jobs"]] == [job]
    assert (await front.http.get("/jobs/none/why")).status_code == 404


class Source:
    """Computes the numbers 1, 2, … and counts."""

    def __init__(self) -> None:
        self.computed = 0

    def find(self, name: str) -> Any:
        if name != "n":
            raise SpecError("unknown topic")
        return self._compute

    async def _compute(self) -> int:
        self.computed += 1
        return self.computed


async def test_watchers_share_a_topic_and_it_ends_with_the_last_one() -> None:
    source = Source()
    live = Live(source.find, SystemClock())
    watchers = [live.watch(["n"]) for _ in range(3)]
    for watcher in watchers:
        assert (await anext(watcher)).startswith(b"retry:")
        assert await anext(watcher) == b"event: n\ndata: 1\n\n"
    assert source.computed == 1
    for watcher in watchers:
        await watcher.aclose()  # type: ignore[attr-defined]
    assert not live._topics
    # The next watcher begins anew.
    again = live.watch(["n"])
    assert [await anext(again), await anext(again)][1] == b"event: n\ndata: 2\n\n"
    await again.aclose()  # type: ignore[attr-defined]
