"""What runs while faults are thrown: three Nexmark queries and the flights job.

A workload gives the job's spec, feeds it where something must, and reads its whole output
back as tables of rows that no restart may change. ``violations`` says what must hold within
one output, ``bench.nexmark.queries`` what the queries are.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec
import nats
import pyarrow as pa

from bench.nexmark.queries import script
from examples.flights import replay
from examples.flights.dataset import AIRPORTS, load
from examples.flights.demo import job_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.chaos.objectstore import ObjectStore

NAMES = ("q5", "q8", "q18", "flights")
#: Every event has a millisecond of its own: no two bids of a key are equally young.
EVENTS_PER_SECOND_OF_EVENT_TIME = 1_000
NEXMARK_SEED = 7


def _query(sql: str) -> pa.Table:
    with duckdb.connect() as db:
        found = db.sql(sql)
        assert found is not None, sql
        return found.to_arrow_table()


@dataclass
class Workload:
    """One job in ``folder``, which task managers can reach. ``pace``: events a second until
    ``release``; ``size``: events or flights in all."""

    name: str
    folder: Path
    size: int
    pace: int
    #: Where files go: None = ``folder``, else this object store.
    store: ObjectStore | None = None

    def __post_init__(self) -> None:
        self.control = self.folder / "control"
        self.out = self.folder / "out"
        self.control.mkdir(parents=True)
        self.out.mkdir()

    def spec(self, config: Mapping[str, str]) -> dict[str, Any]:
        raise NotImplementedError

    def start(self, nats_url: str) -> None:
        """Before the job is submitted."""

    def release(self) -> None:
        """Go on to the end, as fast as it goes."""
        (self.control / "go").touch()

    def finish(self) -> None:
        """The job has ended: whatever fed it ends too, or raises what it met."""
        if self.store is None:
            return
        for key, data in list(self.store.objects.items()):
            if key.startswith("out/") and "/_" not in key:
                path = self.out / key.removeprefix("out/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def _path(self) -> str:
        return str(self.out) if self.store is None else f"{self.store.url}/out"

    def _store_options(self) -> dict[str, str]:
        return {} if self.store is None else {f"fs.{k}": v for k, v in self.store.options.items()}

    def read(self) -> dict[str, pa.Table]:
        """The output, by name of its part; the order of rows means nothing."""
        raise NotImplementedError

    def violations(self) -> list[str]:
        """What this output alone shows to be wrong."""
        return []

    def rows_taken(self) -> int | None:
        """Rows that sinks have taken, committed or not; None where sinks do not note it."""
        return None


class NexmarkQuery(Workload):
    def spec(self, config: Mapping[str, str]) -> dict[str, Any]:
        source = {
            "connector": "python:tests.chaos.connectors:Nexmark", "control": str(self.control),
            "events.num": str(self.size), "rows-per-second": str(self.pace),
            "rate": str(EVENTS_PER_SECOND_OF_EVENT_TIME), "seed": str(NEXMARK_SEED),
        }  # fmt: skip
        sink = {
            "connector": "python:tests.chaos.connectors:ChangelogFiles", "control": str(self.control),
            "path": self._path(), "format": "parquet", **self._store_options(),
        }  # fmt: skip
        return {"name": self.name, "sql": script(self.name, source, sink), "config": dict(config)}

    def rows_taken(self) -> int | None:
        return sum(int(note.read_text()) for note in self.control.glob("rows-*"))

    def _all(self) -> str:
        return f"read_parquet('{self.out}/*.parquet', filename = true, file_row_number = true)"

    def read(self) -> dict[str, pa.Table]:
        columns = "* EXCLUDE (filename, file_row_number)"
        return {"rows": _query(f"SELECT {columns} FROM {self._all()}")}

    def violations(self) -> list[str]:
        updates = _query(f"SELECT * FROM {self._all()} WHERE __kind <> 0").num_rows
        return [f"{updates} rows of an appending query are updates"] if updates else []


class Deduplication(NexmarkQuery):
    """q18 updates: of each key the youngest row counts. Which updates are seen on the way
    hangs on how rows met in batches; that no row comes twice and none after a younger one of
    its key does not."""

    def spec(self, config: Mapping[str, str]) -> dict[str, Any]:
        spec = super().spec(config)
        table, rest = spec["sql"].split("CREATE TABLE sink (")
        columns, rest = rest.split(") WITH (", 1)
        key = "PRIMARY KEY (auction, bidder) NOT ENFORCED"
        return {**spec, "sql": f"{table}CREATE TABLE sink ({columns}, {key}) WITH ({rest}"}

    def _ordered(self) -> str:
        """With its place in the changelog of its key. All rows of a key come from one subtask,
        whose files are named part-<tag>-<subtask>-<checkpoint>-<n>.parquet."""
        return f"""
          SELECT *, lag(dateTime) OVER changes AS older,
                 row_number() OVER changes AS place, count(*) OVER key AS places
          FROM (
            SELECT *, CAST(parts[4] AS BIGINT) AS checkpoint, CAST(split_part(parts[5], '.', 1) AS BIGINT) AS n
            FROM (SELECT *, string_split(parse_filename(filename), '-') AS parts FROM {self._all()}))
          WINDOW key AS (PARTITION BY auction, bidder),
                 changes AS (PARTITION BY auction, bidder ORDER BY checkpoint, n, file_row_number)"""

    def read(self) -> dict[str, pa.Table]:
        columns = "auction, bidder, price, channel, url, dateTime, extra"
        final = f"SELECT {columns} FROM ({self._ordered()}) WHERE place = places AND __kind <> 3"
        return {"last bids": _query(final)}

    def violations(self) -> list[str]:
        twice = _query(f"SELECT * FROM ({self._ordered()}) WHERE dateTime <= older")
        return (
            [f"{twice.num_rows} bids came twice or too late: {twice.slice(0, 3).to_pylist()}"]
            if twice
            else []
        )


@dataclass
class Flights(Workload):
    """The board in files and on a stream, both exactly once; flights come over JetStream."""

    _thread: threading.Thread | None = field(default=None, init=False)
    _failure: BaseException | None = field(default=None, init=False)
    _go: threading.Event = field(default_factory=threading.Event, init=False)
    _url: str = field(default="", init=False)

    def spec(self, config: Mapping[str, str]) -> dict[str, Any]:
        sql = job_sql(self.out, "'22' HOUR").replace(str(self.out), self._path())
        for key, value in self._store_options().items():
            sql = sql.replace("'format' = 'parquet'", f"'format' = 'parquet', '{key}' = '{value}'")
        stream = "'stream.create' = 'true',"
        assert stream in sql
        sql = sql.replace(stream, f"{stream} 'sink.delivery-guarantee' = 'exactly-once',", 1)
        return {"name": self.name, "sql": sql, "config": dict(config)}

    def start(self, nats_url: str) -> None:
        self._url = nats_url
        asyncio.run(replay.create_streams(nats_url))
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._go.set()

    def finish(self) -> None:
        super().finish()
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def read(self) -> dict[str, pa.Table]:
        files = _query(f"SELECT * FROM read_parquet('{self.out}/board/*.parquet')")
        stream = asyncio.run(self._stream())
        late = list((self.out / "late").glob("*.parquet"))
        assert not late, late
        return {"files": files, "stream": stream}

    # -- the feed ------------------------------------------------------------------------

    def _feed(self) -> None:
        try:
            asyncio.run(self._publish_all())
        except BaseException as err:
            self._failure = err

    async def _publish_all(self) -> None:
        """Every message again and again until it is stored; it is stored once by its id."""
        client = await nats.connect(
            self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_ignore
        )
        js = client.jetstream()

        async def publish(number: int, subject: str, data: bytes, headers: dict[str, str]) -> None:
            while True:
                try:
                    await js.publish(
                        subject, data, timeout=2, headers={**headers, "Nats-Msg-Id": str(number)}
                    )
                    return
                except (nats.errors.Error, OSError):
                    await asyncio.sleep(0.1)

        started, flights, number = time.monotonic(), 0, 0
        for number, message in enumerate(replay.messages(load(), self.size)):
            await publish(number, message.subject, message.data, {})
            flights += message.flights
            if flights >= self.size * 9 // 10:
                await asyncio.to_thread(self._go.wait)
            if not self._go.is_set():
                await asyncio.sleep(max(0.0, flights / self.pace - (time.monotonic() - started)))
        for prefix in replay.STREAMS.values():
            for airport in AIRPORTS:
                number += 1
                await publish(number, f"{prefix}.{airport}", b"", replay.END_HEADER)
        await client.close()

    async def _stream(self) -> pa.Table:
        client = await nats.connect(self._url)
        try:
            js = client.jetstream()
            subscription = await js.subscribe("board.*", ordered_consumer=True)
            rows, pending = [], 1
            while pending:
                message = await subscription.next_msg(timeout=30)
                pending = message.metadata.num_pending
                rows.append(msgspec.json.decode(message.data))
        finally:
            await client.close()
        return pa.Table.from_pylist(rows)


async def _ignore(_: Exception) -> None:
    """The feed does not print that its server is away."""


#: (events or flights, of them a second): slow enough for 25 faults on a busy machine.
SIZES = {
    "q5": (1_600_000, 8_000),
    "q8": (1_600_000, 8_000),
    "q18": (800_000, 4_000),
    "flights": (160_000, 800),
}


def make(name: str, folder: Path, *, size: int | None = None, store: ObjectStore | None = None) -> Workload:
    kind = {"flights": Flights, "q18": Deduplication}.get(name, NexmarkQuery)
    usual, pace = SIZES[name]
    return kind(name, folder, size or usual, pace, store)
