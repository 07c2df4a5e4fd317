"""The history of a job's checkpoints: counts, details of the last ones, and who requested them. Pure.

The history survives a change of job master. The decision log records that a checkpoint was completed, and
that a savepoint was requested or failed. Everything else that is shown (sizes, durations, subtasks) is in
an object beside the checkpoint's manifest, written when the checkpoint has ended::

    jobs/<job>/checkpoints/<id>/<epoch>/statistics

No decision depends on these objects: if one is missing, the facts of the log are shown. Statistics that
are no longer shown are deleted, whichever master wrote them.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from penstock.messages.cluster import CheckpointDetails
from penstock.messages.layout import checkpoints_prefix
from penstock_services.jobmanager.effects import DeleteObjects, Effect, KeepStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.messages.cluster import SavepointRequested
    from penstock_services.jobmanager.checkpoints import Request

#: How many ended checkpoints are shown.
HISTORY = 10
_KEY = re.compile(r"(\d+)/(\d+)/statistics")
REPLACED = "the job manager that led it was replaced"


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one ended checkpoint. ``failed``: how many checkpoints of the job had failed until then."""

    details: CheckpointDetails
    failed: int = 0


def statistics_key(job_id: str, checkpoint_id: int, epoch: int) -> str:
    """The object key of a checkpoint's statistics."""
    return f"{checkpoints_prefix(job_id)}{checkpoint_id}/{epoch}/statistics"


def statistics_among(job_id: str, keys: Iterable[str]) -> tuple[str, ...]:
    """The keys of statistics among keys of the job's objects."""
    prefix = checkpoints_prefix(job_id)
    return tuple(key for key in keys if _KEY.fullmatch(key.removeprefix(prefix)))


def newest_statistics(job_id: str, keys: Iterable[str]) -> list[str]:
    """The keys of the statistics to read, newest first. If two masters used the same checkpoint id, the later
    master's count."""
    prefix = checkpoints_prefix(job_id)
    found: dict[int, int] = {}
    for key in keys:
        match = _KEY.fullmatch(key.removeprefix(prefix))
        if match is not None:
            found[int(match[1])] = max(int(match[2]), found.get(int(match[1]), 0))
    return [statistics_key(job_id, n, found[n]) for n in sorted(found, reverse=True)[:HISTORY]]


def merged(
    logged: Sequence[CheckpointDetails], kept: Sequence[Statistics]
) -> tuple[tuple[CheckpointDetails, ...], int]:
    """(the last checkpoints, oldest first; number of failed ones). Where the two differ, the log is right."""
    by_id = {details.id: details for details in logged if details.id}
    for statistics in kept:
        details = statistics.details
        known = by_id.get(details.id)
        if known is None or known.status == details.status:
            by_id[details.id] = details
    unnumbered = [details for details in logged if not details.id]
    every = sorted(
        [*by_id.values(), *unnumbered], key=lambda d: (d.end_timestamp_ms or d.trigger_timestamp_ms, d.id)
    )
    failed = max((s.failed for s in kept), default=0)
    return tuple(every[-HISTORY:]), max(failed, sum(d.status == "FAILED" for d in every))


def waiting(requests: Iterable[Request | SavepointRequested]) -> list[CheckpointDetails]:
    """Checkpoints that were requested and have not begun."""
    return [
        CheckpointDetails(
            id=0, status="IN_PROGRESS", kind=r.kind, trigger_timestamp_ms=0, trigger_id=r.trigger_id
        )
        for r in requests
    ]


class CheckpointHistory:
    """The ended checkpoints of one job. ``counts``: as REST shows them."""

    def __init__(self, job_id: str, epoch: int) -> None:
        self.counts = {"completed": 0, "failed": 0, "in_progress": 0, "restored": 0, "total": 0}
        self._job_id = job_id
        self._epoch = epoch
        #: The checkpoints that are shown, oldest first.
        self._ended: deque[CheckpointDetails] = deque(maxlen=HISTORY)
        #: Keys of the stored statistics, oldest first. Surplus ones are deleted when the next are stored.
        self._kept: deque[str] = deque()
        self._outdated: set[str] = set()
        #: Checkpoints that have begun or ended since somebody looked. Bounded, as not everybody looks.
        self._changes: deque[CheckpointDetails] = deque(maxlen=1_000)

    def take_changes(self) -> list[CheckpointDetails]:
        """The checkpoints that have begun or ended since the last call."""
        found = list(self._changes)
        self._changes.clear()
        return found

    def inherit(
        self,
        ended: Sequence[CheckpointDetails],
        *,
        completed: int,
        failed: int,
        restored: int,
        statistics: Sequence[str] = (),
    ) -> None:
        """Takes over the history of earlier masters. ``statistics``: the keys of all statistics that they
        stored."""
        self._ended.extend(ended)
        newest = newest_statistics(self._job_id, statistics)
        self._kept.extend(reversed(newest))
        self._outdated |= set(statistics) - set(newest)
        self.counts |= {
            "completed": completed, "failed": failed, "restored": restored, "total": completed + failed,
        }  # fmt: skip

    def began(self, details: CheckpointDetails) -> None:
        """Counts a checkpoint that has begun."""
        self._changes.append(details)
        self.counts["total"] += 1
        self.counts["in_progress"] += 1

    def ended(self, details: CheckpointDetails) -> list[Effect]:
        """Adds a checkpoint that has ended; the effects store its statistics."""
        self.counts["in_progress"] -= 1
        self.counts["completed" if details.status == "COMPLETED" else "failed"] += 1
        return self._keep(details)

    def replaced(self, ids: Iterable[int], now_ms: int) -> list[Effect]:
        """Adds checkpoints that an earlier master had in flight as failed, unless their end is known."""
        known = {details.id for details in self._ended}
        effects: list[Effect] = []
        for checkpoint_id in sorted(set(ids) - known)[-HISTORY:]:
            self.counts["failed"] += 1
            self.counts["total"] += 1
            effects += self._keep(
                CheckpointDetails(
                    id=checkpoint_id,
                    status="FAILED",
                    trigger_timestamp_ms=now_ms,
                    end_timestamp_ms=now_ms,
                    failure=REPLACED,
                )
            )
        return effects

    def _keep(self, details: CheckpointDetails) -> list[Effect]:
        key = statistics_key(self._job_id, details.id, self._epoch)
        self._ended.append(details)
        self._changes.append(details)
        self._kept.append(key)
        effects: list[Effect] = [
            KeepStatistics(key, Statistics(details=details, failed=self.counts["failed"]))
        ]
        while len(self._kept) > HISTORY:
            self._outdated.add(self._kept.popleft())
        if self._outdated:
            effects.append(DeleteObjects(frozenset(self._outdated)))
            self._outdated.clear()
        return effects

    def refused(self, request: Request, reason: str, now_ms: int) -> None:
        """Adds a request whose checkpoint never began."""
        details = CheckpointDetails(
            id=0,
            status="FAILED",
            kind=request.kind,
            trigger_timestamp_ms=now_ms,
            end_timestamp_ms=now_ms,
            failure=reason,
            trigger_id=request.trigger_id,
        )
        self._ended.append(details)
        self._changes.append(details)

    def knows(self, trigger_id: str) -> bool:
        """Whether an ended checkpoint was requested with this id."""
        return any(details.trigger_id == trigger_id for details in self._ended)

    def newest_first(self) -> list[CheckpointDetails]:
        """The ended checkpoints, newest first."""
        return list(reversed(self._ended))
