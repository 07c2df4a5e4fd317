"""Records, bytes and times of a vertex, of its subtasks on a task manager, or of one subtask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.messages.states import ExecutionState
from penstock_services.dispatcher.views.common import Kebab, Shape, backpressure_level, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.messages.cluster import SubtaskDetails


class Restore(Shape, frozen=True, kw_only=True):
    """The snapshots that subtasks are restoring, in bytes: all, those read so far, and of these the ones from
    local disks."""

    bytes: int
    read: int
    local: int


class IOMetrics(Kebab, frozen=True, kw_only=True):
    """Totals since the attempt began. ``accumulated-*-time``: ms."""

    read_bytes: int
    read_bytes_complete: bool = True
    write_bytes: int
    write_bytes_complete: bool = True
    read_records: int
    read_records_complete: bool = True
    write_records: int
    write_records_complete: bool = True
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: float
    # Of ours. Each ratio is the highest of a subtask; ``watermark``: the lowest one, in ms.
    read_records_per_second: float
    write_records_per_second: float
    busy_ratio: float
    idle_ratio: float
    backpressure_ratio: float
    backpressure_level: str
    watermark: int | None = None
    watermark_holder: str | None = None
    restore: Restore | None = None


def io_metrics(subtasks: Sequence[SubtaskDetails]) -> IOMetrics:
    """The totals of the subtasks, and the highest of their ratios."""

    def total(name: str) -> float:
        return sum(s.metrics.get(name) or 0 for s in subtasks)

    def highest(what: str) -> float:
        return round(max((ratio(s, what) for s in subtasks), default=0.0), 3)

    holders = [s.metrics.get("watermark_holder") for s in subtasks]
    return IOMetrics(
        read_bytes=int(total("bytes_in")),
        write_bytes=int(total("bytes_out")),
        read_records=int(total("records_in")),
        write_records=int(total("records_out")),
        accumulated_backpressured_time=round(total("back_pressured_ms")),
        accumulated_idle_time=round(total("idle_ms")),
        accumulated_busy_time=float(round(total("busy_ms"))),
        read_records_per_second=round(total("records_in_per_second"), 1),
        write_records_per_second=round(total("records_out_per_second"), 1),
        busy_ratio=highest("busy"),
        idle_ratio=highest("idle"),
        backpressure_ratio=highest("back_pressured"),
        backpressure_level=backpressure_level(highest("back_pressured")),
        watermark=_watermark_ms(subtasks),
        watermark_holder=holders[0] if len(holders) == 1 else None,
        restore=restoring(subtasks),
    )


def restoring(subtasks: Sequence[SubtaskDetails]) -> Restore | None:
    """The progress of the subtasks that restore their state; None if no subtask does."""
    busy = [s.metrics for s in subtasks if s.state is ExecutionState.INITIALIZING]
    known = [metrics for metrics in busy if metrics.get("restore_bytes")]
    if not known:
        return None

    def total(name: str) -> int:
        return sum(metrics.get(name) or 0 for metrics in known)

    return Restore(
        bytes=total("restore_bytes"), read=total("restored_bytes"), local=total("restored_local_bytes")
    )


def _watermark_ms(subtasks: Sequence[SubtaskDetails]) -> int | None:
    """The lowest output watermark, in ms; None while one subtask has none."""
    found = [s.metrics.get("output_watermark") for s in subtasks]
    known = [w for w in found if w is not None]
    return min(known) // 1000 if known and len(known) == len(found) else None
