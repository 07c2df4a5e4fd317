"""Rows of a SELECT, fetched from the object store by long polling."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock.messages.layout import job_prefix, results_prefix, spark_prefix

if TYPE_CHECKING:
    from penstock.ports import Clock, Store
    from penstock_services.dispatcher.directory import JobDirectory

MAX_WAIT_MS = 30_000
MAX_CHUNKS = 64
MAX_BYTES = 8 * 1024 * 1024
#: How many chunks that the reader has are kept (some 16 M rows), so that the results of a bounded query can
#: be fetched again. Older chunks of an endless query are deleted.
KEPT_CHUNKS = 1_024
_CHUNK = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.1


class Results:
    """The results of jobs."""

    def __init__(self, store: Store, directory: JobDirectory, clock: Clock) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        #: Job id → key of the last acknowledged chunk.
        self._acknowledged: dict[str, str] = {}

    async def fetch(self, job_id: str, after: str, wait_ms: int) -> dict[str, Any]:
        """Chunks after the key ``after`` (which the reader has, and so acknowledges). Waits at most
        ``wait_ms`` for some, and not at all once the job is over.

        If no chunk comes and ``status`` is terminal, none will come.
        """
        prefix = results_prefix(job_id)
        if after and not (after.startswith(prefix) and _CHUNK.fullmatch(after.removeprefix(prefix))):
            raise SpecError(
                "not a chunk of this job", expected=f"a key below {prefix}", got=repr(after), where="after"
            )
        # The status is read before the chunks, so that the list has everything that was written until the
        # end.
        status = (await self._directory.details(job_id)).status
        await self._acknowledge(job_id, after)
        deadline_ms = self._clock.monotonic_ms() + min(max(wait_ms, 0), MAX_WAIT_MS)
        pause = _FIRST_PAUSE_S
        while True:
            keys = [key for key, _ in await self._store.list(prefix)]
            await self._forget(keys, after)
            new = without_gaps([key for key in keys if key > after], after)
            if new or status.globally_terminal or self._clock.monotonic_ms() >= deadline_ms:
                return {"chunks": await self._read(new), "status": status.value}
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
            if pause == _LONGEST_PAUSE_S:
                status = (await self._directory.details(job_id)).status

    async def _forget(self, keys: list[str], after: str) -> None:
        """Deletes the oldest chunks that the reader has, if there are too many."""
        if not after:
            if keys and _number(keys[0])[1] >= KEPT_CHUNKS:
                raise SpecError(
                    "the first results of this job are no longer kept",
                    expected=f"at most {KEPT_CHUNKS} chunks behind the first reader",
                    got=f"the oldest is {keys[0]}",
                    remedy="write them with INSERT INTO a table, or run the query again",
                )
            return
        if len(keys) > 2 * KEPT_CHUNKS:
            await self._store.delete([key for key in keys[:-KEPT_CHUNKS] if key <= after])

    async def spark(self, job_id: str) -> dict[str, Any]:
        """What Spark did for each query of the job: its stages and its log."""
        await self._directory.details(job_id)
        keys = [key for key, _ in await self._store.list(spark_prefix(job_id))]
        return {"queries": [json.loads(await self._store.get(key)) for key in keys]}

    async def _read(self, keys: list[str]) -> list[dict[str, str]]:
        chunks: list[dict[str, str]] = []
        size = 0
        for key in keys[:MAX_CHUNKS]:
            data = await self._store.get(key)
            if chunks and size + len(data) > MAX_BYTES:
                break
            size += len(data)
            chunks.append({"key": key, "data": base64.b64encode(data).decode()})
        return chunks

    async def _acknowledge(self, job_id: str, after: str) -> None:
        before = self._acknowledged.get(job_id, "")
        if after <= before:
            return
        self._acknowledged[job_id] = after
        await self._store.put(_ack_key(job_id, after), b"")
        if before:
            await self._store.delete([_ack_key(job_id, before)])


def without_gaps(keys: list[str], after: str) -> list[str]:
    """The leading chunks that follow one another (after ``after``). A list that is made while chunks are
    written may contain one without the one before it."""
    last = _number(after) if after else (-1, -1)
    out = []
    for key in keys:
        attempt, sequence = _number(key)
        if sequence != (last[1] + 1 if attempt == last[0] else 0):
            break
        out.append(key)
        last = attempt, sequence
    return out


def _number(chunk_key: str) -> tuple[int, int]:
    """(attempt, sequence) of a chunk's key ``…/<attempt>-<sequence>``."""
    attempt, sequence = chunk_key.rsplit("/", 1)[-1].split("-")
    return int(attempt), int(sequence)


def _ack_key(job_id: str, chunk_key: str) -> str:
    return f"{job_prefix(job_id)}results-ack/{chunk_key.rsplit('/', 1)[-1]}"
