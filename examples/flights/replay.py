"""Replays a year of departures, and the weather, into JetStream.

Flights go to ``flights.<airport>`` in the order in which they left, many a message (JSON
lines); each hour's weather to ``weather.<airport>`` as that hour begins. A message with
the header ``Penstock-End-Of-Stream`` ends each subject.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import nats
import numpy as np
import pyarrow as pa

from examples.flights.dataset import AIRPORTS, Dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLIGHT_FIELDS = ("origin", "dest", "carrier", "flight", "time_hour", "minute", "dep_delay", "distance")
WEATHER_FIELDS = ("origin", "time_hour", "temp", "wind_speed", "precip", "visib")
STREAMS = {"FLIGHTS": "flights", "WEATHER": "weather"}
END_HEADER = {"Penstock-End-Of-Stream": "true"}
ROWS_PER_BLOCK = 1_000
IN_FLIGHT = 64
#: For the server to say that it has stored a message: a machine that starts a Spark is slow.
ACKNOWLEDGED_S = 60.0


@dataclass(frozen=True)
class Message:
    """``rows`` flights or weather observations, ready to publish."""

    subject: str
    data: bytes
    rows: int
    flights: int


def _lines(table: pa.Table, fields: tuple[str, ...]) -> Iterator[tuple[str, bytes, int]]:
    """(airport, JSON lines, rows) for each airport in the block, its order kept."""
    encoder = msgspec.json.Encoder()
    rows = table.select(list(fields)).to_pylist()
    for airport in AIRPORTS:
        mine = [r for r in rows if r["origin"] == airport]
        for row in mine:
            row["time_hour"] = row["time_hour"].replace("T", " ").removesuffix("Z")
        if mine:
            yield airport, b"\n".join(encoder.encode(r) for r in mine), len(mine)


def messages(data: Dataset, limit: int | None = None) -> Iterator[Message]:
    """All messages in the order in which they are to be published."""
    flights = data.flights if limit is None else data.flights.slice(0, limit)
    hours = data.weather["hour_us"].to_numpy()
    weather_done = 0
    for start in range(0, len(flights), ROWS_PER_BLOCK):
        block = flights.slice(start, ROWS_PER_BLOCK)
        until = int(np.searchsorted(hours, block["left_us"][-1].as_py(), side="right"))
        if until > weather_done:
            observed = data.weather.slice(weather_done, until - weather_done)
            for airport, lines, rows in _lines(observed, WEATHER_FIELDS):
                yield Message(f"weather.{airport}", lines, rows, 0)
            weather_done = until
        for airport, lines, rows in _lines(block, FLIGHT_FIELDS):
            yield Message(f"flights.{airport}", lines, rows, rows)
    if weather_done < len(data.weather) and limit is None:
        for airport, lines, rows in _lines(data.weather.slice(weather_done), WEATHER_FIELDS):
            yield Message(f"weather.{airport}", lines, rows, 0)


async def create_streams(url: str) -> None:
    """FLIGHTS and WEATHER, fresh: what an earlier replay left is deleted."""
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        existing = {info.config.name for info in await jetstream.streams_info()}
        for name, prefix in STREAMS.items():
            if name in existing:
                await jetstream.delete_stream(name)
            await jetstream.add_stream(name=name, subjects=[f"{prefix}.*"])
    finally:
        await client.close()


async def replay(
    url: str,
    data: Dataset,
    *,
    flights_per_second: float | None = None,
    limit: int | None = None,
    on_progress: Callable[[int], Any] = lambda flights: None,
) -> int:
    """Publish everything; returns the number of flights. Paced when a rate is given."""
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream(timeout=ACKNOWLEDGED_S)
        started, sent = time.monotonic(), 0
        waiting: set[asyncio.Task[Any]] = set()
        for message in messages(data, limit):
            if len(waiting) >= IN_FLIGHT:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            waiting.add(asyncio.ensure_future(jetstream.publish(message.subject, message.data)))
            sent += message.flights
            on_progress(sent)
            if flights_per_second:
                ahead = sent / flights_per_second - (time.monotonic() - started)
                if ahead > 0:
                    await asyncio.sleep(ahead)
        for task in waiting:
            await task
        for prefix in STREAMS.values():
            for airport in AIRPORTS:
                await jetstream.publish(f"{prefix}.{airport}", b"", headers=END_HEADER)
        return sent
    finally:
        await client.close()
