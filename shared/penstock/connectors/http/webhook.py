"""Takes rows from requests, and answers a request when its rows are in a complete checkpoint."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config import CHECKPOINT_INTERVAL_MS
from penstock.connectors.http.bodies import records
from penstock.connectors.http.listening import Refusal, Request, serve
from penstock.connectors.http.settings import METADATA, OPTIONS, OWNER
from penstock.connectors.receiving import MOST_BYTES, Arrived, MessageRows, Place, ReceivingReader
from penstock.connectors.unconfirmed import Unconfirmed
from penstock.errors import BrokerError, ConnectorError, PenstockError, RecordError
from penstock.formats import message_format
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.away import Away
    from penstock.connectors.base import SourceContext, Split, TableInfo

#: Seconds after which a sender that was sent away may try again, where there is no checkpoint interval to go by.
_AGAIN_S = 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows ``start`` to ``stop`` of a request's batch, and their id."""

    batch: Batch
    start: int
    stop: int
    id: str | None


@dataclass(eq=False, slots=True)
class _Answer:
    """The answer that a request waits for; ``safe`` is set when the checkpoint that holds its rows is complete."""

    safe: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class _Decoded:
    """Hands on rows that were decoded when their request came."""

    def __init__(self, rows: MessageRows) -> None:
        self._empty = rows.decode([])

    def prepare(self, messages: Sequence[Arrived]) -> None:
        """There is nothing to wait for."""

    def decode(self, messages: Sequence[Arrived]) -> Batch:
        """The rows of messages, in their order."""
        parts: list[_Rows] = []
        for message in messages:
            rows: _Rows = message.token
            if parts and parts[-1].batch is rows.batch and parts[-1].stop == rows.start:
                parts[-1] = replace(parts[-1], stop=rows.stop)
            else:
                parts.append(rows)
        return (
            Batch.concat([p.batch.slice(p.start, p.stop - p.start) for p in parts]) if parts else self._empty
        )


class WebhookReader(ReceivingReader):
    """Reads at least once: a sender repeats a request that was not answered. With ids of requests exactly once: the ids of
    what a sender may repeat are in the checkpoint. ``answer`` = ``received``: at most once."""

    metadata = METADATA

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._format = message_format(table.format, where=OWNER)
        super().__init__(OWNER, f"{OWNER}, {self._options['listen']}")
        self._waits = self._options["answer"] == "checkpoint"
        self._unconfirmed: Unconfirmed | None = None

    async def open(self, ctx: SourceContext) -> None:
        interval_ms = CHECKPOINT_INTERVAL_MS.read(ctx.config)
        if self._waits and not interval_ms:
            raise ConnectorError(
                "requests are answered after a checkpoint, and there are no checkpoints",
                expected=f"'{CHECKPOINT_INTERVAL_MS.key}', or 'answer' = 'received'",
                got=f"'{CHECKPOINT_INTERVAL_MS.key}' = 0",
                where=OWNER,
                remedy=f"set '{CHECKPOINT_INTERVAL_MS.key}', to 1 s for example: senders wait so long",
            )
        self._again_s = max(_AGAIN_S, -(-interval_ms // 1000)) if interval_ms else _AGAIN_S
        await super().open(ctx)
        self._decoder = MessageRows(replace(ctx, bad_record=self._bad_record), self.metadata, OWNER)
        self._rows = _Decoded(self._rows)  # type: ignore[assignment]

    def _bad_record(self, error: Exception, raw: bytes | None, where: str) -> None:
        if self.ctx.on_error == "fail":
            # The sender learns it: a request that anybody sends must not end the job.
            raise error
        self.ctx.bad_record(error, raw, where)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            retention_ms = self._options["scan.id-retention"]
            self._unconfirmed = Unconfirmed(split.position, retention_ms, self.ctx.now_ms(), retention_ms)
        super().add_splits(splits)

    async def receive(self, place: Place, away: Away) -> None:
        async def take(request: Request) -> None:
            try:
                await self._take_in(place, request)
            except Refusal:
                raise
            except Exception as err:
                self.fail(err)
                raise Refusal(503, "the reader has failed: send the request again", self._again_s) from err

        try:
            await serve(self._options, take, self._room_for, away.answered)
        except OSError as err:
            raise BrokerError(
                "the web hook cannot listen",
                expected=f"a free port at {self._options['listen']} of the task manager's machine",
                got=str(err),
                where=self._where,
                remedy="stop what uses the port, or change 'listen'; Penstock tries again",
            ) from err

    def _room_for(self, active: int) -> None:
        """Raises Refusal while as much is held as was agreed."""
        full = self._held >= self.most_messages or self._held_bytes >= MOST_BYTES
        if full or active >= self._options["request.max-pending"]:
            raise Refusal(503, "too much waits for a checkpoint: try again later", self._again_s)

    async def _take_in(self, place: Place, request: Request) -> None:
        """Takes the rows of a request, and returns when it may be answered. Raises Refusal."""
        name = self._options["request-id.header"]
        id = request.headers.get(name.lower()) if name else None
        if name and not id:
            raise Refusal(400, f"the header {name} is missing")
        units = await self._units(request, id)
        if not self._waits:
            for unit in units:
                self.hold(place, unit)
            return
        if units:
            answer = _Answer()
            self._arrive(place, units, answer)
            await answer.safe

    def _arrive(self, place: Place, units: Sequence[Arrived], answer: _Answer) -> None:
        assert self._unconfirmed is not None, "a request came before its split"
        for i, unit in enumerate(units):
            # The last entry of the request is ripe when all are.
            tag = answer if i == len(units) - 1 else None
            if self._unconfirmed.arrive(tag, unit.token.id):
                self.hold(place, unit)

    async def _units(self, request: Request, id: str | None) -> list[Arrived]:
        """The rows of a request, each by itself; a change of two rows stays together."""
        where = f"{self._where}, request {id or 'from ' + request.remote}"
        told = {
            "url": request.target, "headers": list(request.headers.items()), "request-id": id,
            "remote-address": request.remote, "timestamp": dt.datetime.fromtimestamp(self.ctx.now_ms() / 1000, dt.UTC),
        }  # fmt: skip
        time_us = self.ctx.now_ms() * 1000
        try:
            bodies = records(
                request.body, self._options["body"] or "record", self._options["body.pointer"], where
            )
            messages = [
                Arrived(body, f"{where}, record {i + 1}", told, time_us) for i, body in enumerate(bodies)
            ]
            if (missing := self._decoder.prepare(messages)) is not None:
                await missing
            batches = [[m] for m in messages] if self._format.changelog else [messages] if messages else []
            decoded = [self._decoder.decode(part) for part in batches]
        except RecordError as err:
            raise Refusal(400, str(err)) from err
        except PenstockError as err:
            raise Refusal(503, str(err), self._again_s) from err
        out: list[Arrived] = []
        for batch in decoded:
            step = max(1, len(batch)) if self._format.changelog else 1
            for start in range(0, len(batch), step):
                rows = _Rows(batch, start, start + step, None if id is None else f"{id}#{len(out)}")
                out.append(Arrived(request.body if not out else b"", where, token=rows))
        return out

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        if self._waits and self._unconfirmed is not None:
            self._unconfirmed.poll([message.token.id for message in messages])
        return place.position

    def position_of(self, place: Place) -> Any:
        assert self._unconfirmed is not None
        return self._unconfirmed.position()

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        unconfirmed = self._unconfirmed
        if unconfirmed is None:
            return
        for split in positions:
            entries = unconfirmed.ripe(split.position)
            for entry in entries:
                if entry.tag is not None and not entry.tag.safe.done():
                    entry.tag.safe.set_result(None)
            unconfirmed.acknowledged(entries, self.ctx.now_ms())
            unconfirmed.forget(self.ctx.now_ms())
