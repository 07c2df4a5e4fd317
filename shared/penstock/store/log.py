"""The decision log: the record of what was decided for a job, or of who leads a role.

Entries are the objects ``<prefix>/<n:012d>`` with n = 1, 2, …. Each is created only if absent, at n = last
+ 1, and never changed. The fencing token (the epoch) is the number of the leader's own ``LeaderEpoch``
entry. A writer whose create fails reads further. If it finds a newer epoch it raises ``FencedError``,
because it no longer leads; otherwise it tries again after the last entry that it read.
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
    """The decision log of a job."""
    return DecisionLog(store, f"jobs/{job_id}/log")


def role_log(store: Store, role: str) -> DecisionLog:
    """The decision log of a role of the cluster, such as the resource manager."""
    return DecisionLog(store, f"roles/{role}/log")


class DecisionLog:
    """The log at ``prefix``, as one reader or one leader knows it.

    ``entries``: list of (number, entry), as far as read. ``epoch``: this leader's fencing token after
    ``lead``; before that 0, and ``append`` is refused. Methods that touch the store raise ObjectStoreError
    if it fails, and InternalError if an entry cannot be decoded.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self.prefix = prefix
        self.entries: list[tuple[int, LogEntry]] = []
        self.epoch = 0

    @property
    def last(self) -> int:
        """The number of the last entry that was read; 0 if none was."""
        return self.entries[-1][0] if self.entries else 0

    @property
    def latest_epoch(self) -> int:
        """The fencing token of the newest leader, as far as read; 0 if there was no leader."""
        return max((n for n, entry in self.entries if isinstance(entry, LeaderEpoch)), default=0)

    def key(self, n: int) -> str:
        """The object key of entry ``n``."""
        return f"{self.prefix}/{n:012d}"

    async def read(self) -> list[tuple[int, LogEntry]]:
        """Reads the new entries up to the end of the log, and returns all entries as (number, entry).

        Entries are read by number and not by listing, because a listing may lag behind writes.
        """
        while True:
            n = self.last + 1
            try:
                data = await self._store.get(self.key(n))
            except KeyError:
                return self.entries
            self.entries.append((n, self._decode(n, data)))

    async def first(self) -> LogEntry | None:
        """The first entry of the log, or None if the log has not begun. Reads only that entry."""
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
                remedy="check whether a newer version wrote it, or whether it was changed by hand",
            ) from err

    async def begin(self, entry: JobAccepted) -> bool:
        """Writes the first entry. Returns False if the log already begins with another entry."""
        return await self._create(1, entry)

    async def lead(self, leader_id: str, now_ms: int) -> int:
        """Appends this leader's ``LeaderEpoch`` and returns its number, the fencing token.

        From then on ``append`` of every older leader raises FencedError. The log is read to its end first,
        so that ``entries`` holds every earlier decision. ``now_ms``: milliseconds since 1970.
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
        """Appends ``entry`` as the leader, and returns its number once the entry is durable.

        Raises FencedError if a newer leader has begun, InternalError before ``lead``, and ObjectStoreError
        if the store failed. After an ObjectStoreError it is unknown whether the entry was written;
        repeating is safe.
        """
        if not self.epoch:
            raise InternalError("append before lead()", where=self.prefix)
        while True:
            self.check()  # another append of this object may have read the entry of a newer leader meanwhile
            # If an earlier, failed try has written this entry at n, ``_create`` recognises it.
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
        """Raises FencedError if a newer epoch than this leader's has been read. Reads nothing itself."""
        if self.latest_epoch > self.epoch:
            raise FencedError(
                f"another leader took over: epoch {self.latest_epoch} is newer than ours, {self.epoch}",
                where=self.prefix,
            )

    async def _create(self, n: int, entry: LogEntry) -> bool:
        """Whether entry ``n`` is this one: created now, or by an earlier try whose answer was lost."""
        data = _encoder.encode(entry)
        if await self._store.create(self.key(n), data):
            return True
        try:
            return await self._store.get(self.key(n)) == data
        except KeyError:
            return False
