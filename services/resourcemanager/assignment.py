"""Which waiting job gets which free slots.

Jobs are served in the order of arrival. A job gets all slots that it misses, or none: no two jobs hold half
of what each needs.

A job that does not fit now is passed over, so that small jobs use the free slots. But once a job that
*could* fit has waited ``STARVATION_MS``, the jobs behind it wait too.

Slots are spread: each comes from the task manager with the most free slots, then from the one with the
fewest slots of this job. A job that wants its slots together gets them from the fullest task manager that
has all of them free, if there is one.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: How long a job that could fit waits before jobs behind it wait too.
STARVATION_MS = 30_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that misses slots. ``needed``: how many it needs in total. ``since_ms``: when it began to wait.
    ``together``: it wants them on one task manager."""

    job_id: str
    missing: int
    needed: int
    since_ms: int
    together: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """A free slot that a job gets."""

    job_id: str
    taskmanager_id: str
    slot_index: int


def assign(
    waiting: Iterable[Waiting],
    free: Mapping[str, list[int]],
    held: Mapping[tuple[str, str], int],
    total: int,
    now_ms: int,
) -> list[Grant]:
    """The slots that each job gets.

    ``waiting``: in order of arrival. ``free``: task manager → indices of free slots. ``held``: (task
    manager, job) → number of slots that the job has there. ``total``: all slots of the cluster.
    """
    left = {manager: deque(sorted(indices)) for manager, indices in free.items() if indices}
    count = sum(map(len, left.values()))
    grants: list[Grant] = []
    for job in waiting:
        if job.missing > count:
            if job.needed <= total and now_ms - job.since_ms >= STARVATION_MS:
                break
            continue
        best = [(-len(indices), held.get((m, job.job_id), 0), m) for m, indices in left.items()]
        if job.together:
            fitting = [entry for entry in best if -entry[0] >= job.missing]
            best = [max(fitting)] if fitting else best
        heapq.heapify(best)
        for _ in range(job.missing):
            minus_free, mine, manager = best[0]
            grants.append(Grant(job.job_id, manager, left[manager].popleft()))
            if left[manager]:
                heapq.heapreplace(best, (minus_free + 1, mine + 1, manager))
            else:
                heapq.heappop(best)
                del left[manager]
        count -= job.missing
    return grants
