"""The decision log: the truth about a job, or about who leads a role.

Entries are objects ``<prefix>/<n:012d>``, n = 1, 2, …, each created only if absent at
n = last + 1 and never changed. The fencing token is the number of the leader's own
``LeaderEpoch`` entry. Whoever loses a create reads on: on a newer epoch it raises
``FencedError`` (it leads no more), otherwise it tries behind what it read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import FencedError, InternalError, ObjectStoreError
from penstock.messages.cluster import JobAccepted, LeaderEpoch, LogEntry

if TYPE_CHECKING:
    from penstock.ports import Store

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[LogEntry] = msgspec.json.Decoder(LogEntry)


def job_log(store: Store, job_id: str) -> DecisionLog:
    return DecisionLog(store, f"jobs/{job_id}/log")


def role_log(store: Store, role: str) -> DecisionLog:
    return DecisionLog(store, f"roles/{role}/log")


class DecisionLog:
    """One reader's or leader's view of a log.

    ``entries``: [(n, entry)] as far as read. ``epoch``: this leader's token once ``lead``
    returned, 0 before (then ``append`` is refused).
    """

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self.prefix = prefix
        self.entries: list[tuple[int, LogEntry]] = []
        self.epoch = 0

    @property
    def last(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    @property
    def latest_epoch(self) -> int:
        """Token of the newest leader, as far as read; 0 when there was none."""
        return max((n for n, entry in self.entries if isinstance(entry, LeaderEpoch)), default=0)

    def key(self, n: int) -> str:
        return f"{self.prefix}/{n:012d}"

    async def read(self) -> list[tuple[int, LogEntry]]:
        """Read to the end (only what is new), and return all entries.

        By number and not by listing: a listing may lag behind writes.
        """
        while True:
            n = self.last + 1
            try:
                data = await self._store.get(self.key(n))
            except KeyError:
                return self.entries
            self.entries.append((n, self._decode(n, data)))

    async def first(self) -> LogEntry | None:
        """What the log began with, None before; reads nothing else."""
        try:
            return self._decode(1, await self._store.get(self.key(1)))
        except KeyError:
            return None

    def _decode(self, n: int, data: bytes) -> LogEntry:
        try:
            return _decoder.decode(data)
        except msgspec.DecodeError as err:
            raise InternalError(
                f"an entry of the decision log cannot be read: {err}",
                expected="an entry as this version writes it (docs/state-format.md)",
                got=repr(data[:200]),
                where=self.key(n),
                remedy="was it written by a newer version, or changed by hand?",
            ) from err

    async def begin(self, entry: JobAccepted) -> bool:
        """Write the first entry. False when the log has begun already (by whomever)."""
        return await self._create(1, entry)

    async def lead(self, leader_id: str, now_ms: int) -> int:
        """Append this leader's ``LeaderEpoch`` and return its number, the fencing token.

        From then on every older leader's ``append`` raises FencedError. The log is read
        to its end first; ``entries`` holds all that was decided before.
        """
        entry = LeaderEpoch(leader_id=leader_id, timestamp_ms=now_ms)
        while True:
            await self.read()
            n = self.last + 1
            if await self._create(n, entry):
                self.entries.append((n, entry))
                self.epoch = n
                return n

    async def append(self, entry: LogEntry) -> int:
        """Append as the leader; returns the entry's number once it is durable.

        FencedError when a newer leader has begun; ObjectStoreError when the store
        failed: then whether it was written is not known, and repeating is safe.
        """
        if not self.epoch:
            raise InternalError("append before lead()", where=self.prefix)
        while True:
            self.check()  # an entry that waited while another one met a newer leader has met it, too
            # Also what an earlier, failed try may have written.
            n = self.last + 1
            if await self._create(n, entry):
                self.entries.append((n, entry))
                return n
            before = self.last
            await self.read()
            if self.last == before:
                raise ObjectStoreError(
                    "a create was refused, but the object is not there",
                    where=self.key(n),
                    remedy="the object store must be strongly consistent for reads after writes",
                )

    def check(self) -> None:
        """FencedError when what was read holds a newer epoch than ours."""
        if self.latest_epoch > self.epoch:
            raise FencedError(
                f"another leader took over: epoch {self.latest_epoch} is newer than ours, {self.epoch}",
                where=self.prefix,
            )

    async def _create(self, n: int, entry: LogEntry) -> bool:
        """True when entry n is ours: created now, or by a try whose answer was lost."""
        data = _encoder.encode(entry)
        if await self._store.create(self.key(n), data):
            return True
        try:
            return await self._store.get(self.key(n)) == data
        except KeyError:
            return False
