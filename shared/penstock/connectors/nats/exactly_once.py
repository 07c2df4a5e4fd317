"""The exactly-once JetStream sink.

Rows are *staged* until their checkpoint is complete (``connectors.staging``), then published in atomic
batches of at most 999 rows and one *marker*: a message on the transaction's own marker subject,
conditional on that subject's last sequence. The server stores all of a batch or none.
The marker's body holds the transaction's progress: (checkpoint, batch).

- A repeated commit reads the marker and continues after it; a batch sent twice is refused, because its
  condition no longer holds.
- A new attempt commits what it restored, then writes a marker of its own (*fence*), so that the server
  refuses everything an older attempt still sends; that attempt then reads a marker of a higher attempt and
  stops.
- Staged rows are in the object store before a checkpoint is acknowledged; the committables name their
  objects. Rows of an aborted checkpoint belong to the next one. Objects are deleted
  when the checkpoint after the commit is complete.
"""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.nats.client import TRANSACTION_HEADER, JetStreamApi, connect, server_url
from penstock.connectors.nats.encoding import MessageEncoder
from penstock.connectors.nats.settings import OPTIONS
from penstock.connectors.nats.streams import marker_subject, sink_stream
from penstock.connectors.staging import StagedWriter
from penstock.errors import BrokerError, FencedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.staging import Committable, StagedMessage
    from penstock.types import Batch

#: The server takes 1000 messages in an atomic batch; one is the marker.
BATCH_ROWS = 999
#: err_code of a failed condition on a subject's last sequence.
_WRONG_LAST_SEQUENCE = (10071, 10164)
#: Seconds to wait for the answer to a commit. After that the marker tells whether the batch was stored.
COMMIT_TIMEOUT_S = 10.0


def batches(item: Committable) -> list[tuple[str, int]]:
    """(object key, first row in it) of every atomic batch of an epoch."""
    return [(key, first) for key, rows in item.objects for first in range(0, rows, BATCH_ROWS)]


class Marker(msgspec.Struct, frozen=True):
    """The progress of a transaction. ``done``: for each job, the last checkpoint that is stored completely;
    ``checkpoint_id``, ``batch``: batches [0, batch) of ``job``'s next checkpoint are stored. ``attempt``: the
    attempt of ``job``; lower attempts are refused."""

    job: str
    attempt: int
    done: dict[str, int] = {}
    checkpoint_id: int = 0
    batch: int = 0


#: The most jobs that a marker remembers: jobs that were restored from each other's savepoints.
_MAX_JOBS = 16


class Transactions:
    """Commits epochs to one stream, on any number of marker subjects."""

    def __init__(self, api: JetStreamApi, stream: str, job: str, attempt: int) -> None:
        self._api = api
        self._stream = stream
        self._job = job
        self._attempt = attempt
        #: marker subject → (sequence of its last message, that marker)
        self._known: dict[str, tuple[int, Marker | None]] = {}
        self._fenced: set[str] = set()

    async def fence(self, subject: str) -> None:
        """Make the server refuse the batches of older attempts on ``subject`` from now on."""
        while True:
            sequence, marker = await self._read(subject)
            marker = marker or Marker(self._job, 0)
            self._check(subject, marker)
            if (marker.job, marker.attempt) == (self._job, self._attempt):
                self._fenced.add(subject)
                return
            await self._publish(subject, [], sequence, self._mine(marker))

    async def commit(
        self, item: Committable, load: Callable[[str], Awaitable[Sequence[StagedMessage]]]
    ) -> None:
        """Publish the rows of the epoch that are not stored yet. ``FencedError`` if a newer attempt has taken
        over."""
        parts = batches(item)
        if item.marker not in self._known:
            await self._read(item.marker)
        loaded: tuple[str, Sequence[StagedMessage]] = ("", ())
        while True:
            sequence, marker = self._known[item.marker]
            marker = marker or Marker(self._job, 0)
            self._check(item.marker, marker)
            if marker.done.get(item.job, -1) >= item.checkpoint_id:
                return
            number = marker.batch if marker.checkpoint_id == item.checkpoint_id else 0
            key, first = parts[number]
            if loaded[0] != key:
                loaded = (key, await load(key))
            after = self._mine(marker)
            if number + 1 == len(parts):
                done = {k: v for k, v in list(marker.done.items())[-_MAX_JOBS:] if k != item.job}
                done[item.job] = item.checkpoint_id
                after = msgspec.structs.replace(after, done=done, checkpoint_id=0, batch=0)
            else:
                after = msgspec.structs.replace(after, checkpoint_id=item.checkpoint_id, batch=number + 1)
            part = loaded[1][first : first + BATCH_ROWS]
            if not await self._publish(item.marker, part, sequence, after):
                await self._read(item.marker)

    def _mine(self, marker: Marker) -> Marker:
        return msgspec.structs.replace(marker, job=self._job, attempt=self._attempt)

    def _check(self, subject: str, marker: Marker) -> None:
        same = marker.job == self._job
        if (same and marker.attempt > self._attempt) or (not same and subject in self._fenced):
            raise FencedError(
                "an older attempt of this sink may no longer commit",
                expected=f"attempt {marker.attempt} of job {marker.job}, or later",
                got=f"attempt {self._attempt} of job {self._job}",
                where=f"stream '{self._stream}', transaction '{subject}'",
                remedy="nothing, if a newer attempt runs; two jobs need two sink.transactional-id-prefix",
            )

    async def _read(self, subject: str) -> tuple[int, Marker | None]:
        message = await self._api.last_message(self._stream, subject)
        if message is None:
            found: tuple[int, Marker | None] = (0, None)
        else:
            body = base64.b64decode(message.get("data", ""))
            found = (message["seq"], msgspec.json.decode(body, type=Marker))
        self._known[subject] = found
        return found

    async def _publish(
        self, subject: str, rows: Sequence[StagedMessage], last_sequence: int, marker: Marker
    ) -> bool:
        """Publish one atomic batch: rows, then the marker. Returns False if the condition failed or no reply
        came; the caller must then read the marker."""
        client = self._api.client
        batch_id = uuid.uuid4().hex
        await self._send(self._publish_rows(rows, batch_id))
        head = {
            TRANSACTION_HEADER: "marker",
            "Nats-Expected-Last-Subject-Sequence": str(last_sequence),
        }
        if rows:
            head["Nats-Batch-Id"] = batch_id
            head["Nats-Batch-Sequence"] = str(len(rows) + 1)
            head["Nats-Batch-Commit"] = "1"
        body = msgspec.json.encode(marker)
        answer = await self._send(client.request(subject, body, timeout=COMMIT_TIMEOUT_S, headers=head))
        if answer is None or not answer.data:
            return False
        reply = msgspec.json.decode(answer.data)
        error = reply.get("error")
        if error is None:
            self._known[subject] = (reply["seq"], marker)
            return True
        if error.get("err_code") in _WRONG_LAST_SEQUENCE:
            return False
        raise BrokerError(
            f"stream '{self._stream}' refused an atomic batch of {len(rows)} rows",
            got=f"{error.get('description')} (err_code {error.get('err_code')})",
            where=f"transaction '{subject}'",
            remedy="check the stream's limits and that its allow_atomic is set (nats-server 2.12 or newer)",
        )

    async def _publish_rows(self, rows: Sequence[StagedMessage], batch_id: str) -> None:
        publish = self._api.client.publish
        for number, (subject, data, headers) in enumerate(rows, 1):
            head = {"Nats-Batch-Id": batch_id, "Nats-Batch-Sequence": str(number)}
            if headers:
                head.update(headers)
            await publish(subject, data, headers=head)

    async def _send(self, call: Awaitable[Any]) -> Any:
        """The result of ``call``. None if the connection failed: it is then unknown whether the message was
        stored."""
        import nats.errors

        try:
            return await call
        except (TimeoutError, nats.errors.Error, OSError):
            return None


class ExactlyOnceWriter(StagedWriter):
    """Stages messages and publishes them when their checkpoint is complete."""

    def __init__(self, table: TableInfo) -> None:
        super().__init__()
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._api: JetStreamApi | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self._open_staging(ctx)
        self._encoder = MessageEncoder(self._table, self._options, ctx)
        url = server_url(self._options, ctx.config)
        client = await connect(url, f"penstock exactly-once sink {ctx.uid} {ctx.subtask_index}")
        self._api = JetStreamApi(client, url)
        self._encoder.max_payload = client.max_payload
        wildcard = self._encoder.template.wildcard
        stream = await sink_stream(self._api, self._options, wildcard, transactional=True)
        prefix = self._options["sink.transactional-id-prefix"] or ctx.job_id
        # Two sinks of a job may write the same table, and then have the same prefix.
        self._marker = marker_subject(stream, f"{prefix}-{ctx.uid}", ctx.subtask_index)
        self._transactions = Transactions(self._api, stream, ctx.job_id, ctx.attempt)
        items = await self._commit_restored(restored)
        for subject in {self._marker, *(i.marker for i in items)}:
            await self._transactions.fence(subject)
        await self._encoder.open()

    def write(self, batch: Batch) -> None:
        messages = self._encoder.encode(batch)
        self._take(messages, sum(len(m.data) + len(m.subject) for m in messages))

    async def _publish(
        self, item: Committable, load: Callable[[str], Awaitable[Sequence[StagedMessage]]]
    ) -> None:
        await self._transactions.commit(item, load)

    async def close(self) -> None:
        await super().close()
        if self._api is not None:
            await self._api.client.close()
