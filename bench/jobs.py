"""A bounded SQL job in a process of its own, by its CPU time: what figures per event need.

No cluster and no checkpoints: the job's real tasks on one data thread, and the state that
every task hands in at its end.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Used:
    """``cpu_s``: of the whole process, without planning. ``peak_bytes``: resident."""

    cpu_s: float
    peak_bytes: int
    rows: int
    checksum: int


def run_sql(sql: str, *, parallelism: int = 1, timeout_s: float = 1800) -> Used:
    """``sql``: a script whose one INSERT goes to a ``blackhole``, or to any sink without rows
    to count. Raises what the job raises."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (sql, parallelism, timeout_s))


def _run(sql: str, parallelism: int, timeout_s: float) -> Used:
    import resource

    from penstock.sql.scripts import plan_script
    from penstock.testing import run_graph

    planned = plan_script(
        sql,
        {
            "parallelism.default": str(parallelism),
            "execution.engine": "streaming",
            "execution.runtime-mode": "STREAMING",
            "table.exec.join.unbounded-state": "allow",
        },
    )
    before = time.process_time()
    result = run_graph(planned.job_graph, timeout_s=timeout_s)
    used = time.process_time() - before
    return Used(
        cpu_s=used,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        rows=int(sum(result.gauge("sinkRows"))),
        checksum=int(sum(result.gauge("sinkChecksum"))) % 2**64,
    )
