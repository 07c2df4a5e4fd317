"""Sends rows in requests."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.away import Away, patiently
from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.http.client import answer_of, client, place, refused, said
from penstock.connectors.http.settings import OPTIONS, OWNER, SINK_HEADER, headers_of, own_table
from penstock.connectors.staging import Committable, StagedWriter, commit_left
from penstock.connectors.texts import KeyTemplate
from penstock.errors import BrokerError, RecordError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SinkWriter, SourceContext, TableInfo
    from penstock.types import Batch

#: A refusal of these statuses is of the rows in the request; any other is of the table or of the user's rights.
_OF_ROWS = (400, 409, 413, 415, 422)


@dataclass(frozen=True, slots=True)
class Row:
    """An encoded row. ``number``: its place among the rows of the writer."""

    number: int
    data: bytes
    url: str


def in_batches(table: TableInfo) -> bool:
    """Whether a request has many rows."""
    mode = OPTIONS.read_one(table.options, "http.sink.writer.request.mode")
    return bool(table.format == "json" if mode is None else mode == "batch")


class Requests:
    """Encodes rows, and sends them."""

    def __init__(self, table: TableInfo) -> None:
        self.options = OPTIONS.read(table.options)
        self.batched = in_batches(table)
        self.url: str = self.options["url"]
        self.where = f"{OWNER}, {place(self.url)}"
        self.most = 1 if self.batched else self.options["http.sink.writer.thread-pool.size"]
        self._template = KeyTemplate(self.url, table.schema, OWNER, "url", in_url=True)
        self._encoder = message_format(table.format, where=OWNER).encoder(table.schema, table.options)
        self._headers = headers_of(table.options, SINK_HEADER)
        if not any(name.lower() == "content-type" for name in self._headers) and table.format == "json":
            self._headers["Content-Type"] = "application/json"
        self._client: Any = None
        self._count = 0

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        await self._encoder.open()
        self._client = client(self.options, self._headers, role="sink", most=self.most)

    def rows(self, batch: Batch) -> list[Row]:
        """The rows of a batch, encoded; a row without an address goes to ``bad_record``."""
        out = []
        for i, (data, url) in enumerate(
            zip(self._encoder.encode(batch), self._template.keys(batch), strict=True)
        ):
            if url is None:
                error = RecordError(
                    "a row has no address",
                    expected="values in the columns of 'url'",
                    got="NULL",
                    where=self.where,
                    remedy="filter such rows, or declare the columns NOT NULL",
                )
                self.ctx.bad_record(
                    error, repr(batch.slice(i, 1).to_pylist()[0]).encode(), f"sink {self.ctx.uid}"
                )
                continue
            self._count += 1
            out.append(Row(self._count, data, url.decode()))
        return out

    def body(self, rows: Sequence[Row]) -> bytes:
        """The body of a request with these rows."""
        return b"[" + b",".join(row.data for row in rows) + b"]" if self.batched else rows[0].data

    async def send(self, url: str, body: bytes, key: str) -> None:
        """Send a request. Raises BrokerError if it should be sent again; rows that are refused go to ``bad_record``."""
        name = self.options["http.sink.idempotency-header"]
        request = self._client.build_request(
            self.options["insert-method"], url, content=body, headers={name: key} if name else {}
        )
        answer = await answer_of(self._client, request, self.options["http.sink.retry-codes"])
        if answer.status_code in self.options["http.sink.success-codes"]:
            return
        if answer.status_code not in _OF_ROWS:
            raise refused(answer)
        error = RecordError(
            "the server refuses rows",
            expected="a status of 'http.sink.success-codes'",
            got=said(answer),
            where=self.where,
            remedy="correct the table's columns or format; 'on-error' = 'skip' leaves such requests out",
        )
        self.ctx.bad_record(error, body, self.where)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class HttpWriter(BufferedWriter):
    """Writes at least once. A request that is repeated has the same key; rows that are written again after a restart
    have other ones."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._requests = Requests(table)
        options = self._requests.options
        super().__init__(
            self._requests.where,
            max_items=options["http.sink.request.batch.size"],
            interval_ms=options["sink.buffer-flush.interval"],
        )
        self._prefix = uuid.uuid4().hex

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        await commit_left(ExactlyOnceWriter(self._table), ctx, restored)
        await self._requests.open(ctx)

    def encode(self, batch: Batch) -> Sequence[Row]:
        return self._requests.rows(batch)

    async def send(self, items: Sequence[Row]) -> Sequence[Row]:
        if self._requests.batched:
            key = f"{self._prefix}-{items[0].number}-{len(items)}"
            await self._requests.send(items[0].url, self._requests.body(items), key)
            return ()
        again: list[Row] = []
        failure: BrokerError | None = None
        for start in range(0, len(items), self._requests.most):
            part = items[start : start + self._requests.most]
            answers = await asyncio.gather(*(self._one(row) for row in part), return_exceptions=True)
            for row, answer in zip(part, answers, strict=True):
                if isinstance(answer, BrokerError):
                    failure = answer
                    again.append(row)
                elif isinstance(answer, BaseException):
                    raise answer
            if again:
                # Rows behind one that is sent again wait, so that they do not overtake it.
                again += items[start + len(part) :]
                break
        if failure is not None and len(again) == len(items):
            raise failure
        return again

    async def _one(self, row: Row) -> None:
        await self._requests.send(row.url, row.data, f"{self._prefix}-{row.number}")

    async def close(self) -> None:
        await super().close()
        await self._requests.close()


class ExactlyOnceWriter(StagedWriter):
    """Keeps requests until their checkpoint is complete, and sends them then. What a restart sends again is the same
    request with the same key."""

    def __init__(self, table: TableInfo) -> None:
        super().__init__()
        self._requests = Requests(table)
        self._waiting: list[Row] = []
        #: Objects that were committed, and those among them that no later checkpoint than the one in front names.
        self._sent: list[str] = []
        self._old: list[tuple[int, list[str]]] = []
        self._away = Away(self._requests.where)

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self._open_staging(ctx)
        self._marker = f"{ctx.job_id}-{ctx.uid}-{ctx.subtask_index}"
        await self._requests.open(ctx)
        await self._commit_restored(restored)

    def write(self, batch: Batch) -> None:
        self._waiting += self._requests.rows(batch)
        size = self._requests.options["http.sink.request.batch.size"] if self._requests.batched else 1
        while len(self._waiting) >= size:
            self._form(size)

    def _form(self, size: int) -> None:
        rows, self._waiting = self._waiting[:size], self._waiting[size:]
        body = self._requests.body(rows)
        self._take([(rows[0].url, body)], len(body))

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        if self._waiting:
            self._form(len(self._waiting))
        self._old.append((checkpoint_id, [*self._sent, *self._committed_objects]))
        self._sent, self._committed_objects = [], []
        return super().begin_checkpoint(checkpoint_id)

    async def commit(self, checkpoint_id: int) -> None:
        # A server of HTTP has no marker that says what was committed. So objects stay until a checkpoint is complete
        # that was cut after they were sent: only then can no restore want them.
        self._sent += self._committed_objects
        self._committed_objects = [key for cut, keys in self._old if cut <= checkpoint_id for key in keys]
        self._old = [(cut, keys) for cut, keys in self._old if cut > checkpoint_id]
        await super().commit(checkpoint_id)
        self._sent += self._committed_objects
        self._committed_objects = []

    def needs_commit(self) -> bool:
        return bool(self._waiting) or super().needs_commit()

    async def _publish(self, item: Committable, load: Callable[[str], Awaitable[Sequence[Any]]]) -> None:
        for name, _ in item.objects:
            staged = await load(name)
            for i, (url, body) in enumerate(staged):
                await self._until_taken(url, body, f"{name.replace('/', '-')}-{i}")

    async def _until_taken(self, url: str, body: bytes, key: str) -> None:
        await patiently(lambda: self._requests.send(url, body, key), self._away, None)

    def away(self) -> str | None:
        return self._away.reason

    async def close(self) -> None:
        await super().close()
        await self._requests.close()


def writer_of(table: TableInfo) -> SinkWriter:
    """The writer for the guarantee that the table asks for."""
    table = own_table(table)
    exact = OPTIONS.read_one(table.options, "sink.delivery-guarantee") == "exactly-once"
    return ExactlyOnceWriter(table) if exact else HttpWriter(table)
