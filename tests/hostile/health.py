"""What the processes of a cluster hold: descriptors, connections, threads, memory; and what their logs complain of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psutil

#: Descriptors and threads that a process may hold more than before: pools of connections and of worker threads fill.
FEW = 24
#: Bytes of memory that a process may hold more: caches of bounded size, and what the allocator does not give back.
GROWTH_BYTES = 200 * 1024 * 1024
_EVENT = re.compile(r"\bevent=(\w+)")
#: Errors in a log that do not mean a fault of ours: a job of somebody fails, or cannot be planned.
_ALLOWED = frozenset({"task_failed", "job_failed"})


@dataclass(frozen=True)
class Held:
    """What one process holds."""

    pid: int
    descriptors: int
    connections: int
    threads: int
    rss_bytes: int


def held(pid: int) -> Held:
    """What the process with this id holds now."""
    process = psutil.Process(pid)
    with process.oneshot():
        return Held(
            pid,
            process.num_fds(),
            len(process.net_connections(kind="tcp")),
            process.num_threads(),
            process.memory_info().rss,
        )


def grown(name: str, before: Held, after: Held) -> list[str]:
    """What ``name`` holds that it did not hold before, as sentences."""
    if before.pid != after.pid:
        return []  # its end was reported
    found = []
    for what in ("descriptors", "connections", "threads"):
        was, now = getattr(before, what), getattr(after, what)
        if now > was + FEW:
            found.append(f"{name} holds {now} {what}, {was} before")
    if after.rss_bytes > before.rss_bytes + GROWTH_BYTES:
        found.append(f"{name} holds {after.rss_bytes >> 20} MiB, {before.rss_bytes >> 20} MiB before")
    return found


def complaints(log: Path) -> dict[str, str]:
    """Event → its first line, of the events in a service's log that mean a fault: those of the level error."""
    found: dict[str, str] = {}
    for line in log.read_text(errors="replace").splitlines():
        if " level=error " in line or " level=critical " in line:
            event = _EVENT.search(line)
            name = event[1] if event else "an error"
            if name not in _ALLOWED:
                found.setdefault(name, line[:1_500])
    return found


def was_cancelled(log: Path, job_id: str) -> bool:
    """Whether a client of REST cancelled or stopped the job, by the dispatcher's log: schemathesis takes the ids that it
    sends from answers."""
    asked = re.compile(rf"method=\w+ path=(/v1)?/jobs/{job_id}(/yarn-cancel|/stop)? status=202")
    return asked.search(log.read_text(errors="replace")) is not None
