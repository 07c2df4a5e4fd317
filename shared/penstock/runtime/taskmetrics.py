"""How a task spends its time, and its metrics for the reporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.messages.slot import OperatorMetrics, TaskMetrics
from penstock.operators.drivers import SinkDriver, SourceDriver
from penstock.operators.operator import MIN_WATERMARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.runtime.task import Task

STATES = ("busy", "idle", "back-pressured")


class TaskClock:
    """Counts the seconds spent busy, idle and back-pressured. Together they are the time that has passed."""

    __slots__ = ("_at", "_last", "_last_at", "_time_s", "_totals", "seconds", "state")

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self.seconds = dict.fromkeys(STATES, 0.0)
        self.state = "idle"
        self._at = self._last_at = time_s()
        self._last = dict(self.seconds)
        self._totals: tuple[int, ...] = ()

    def enter(self, state: str, now: float | None = None) -> None:
        """Enter a state ("busy", "idle" or "back-pressured") at ``now`` seconds (default: now)."""
        now = self._time_s() if now is None else now
        self.seconds[self.state] += now - self._at
        self.state = state
        self._at = now

    def rates(self, totals: tuple[int, ...]) -> tuple[dict[str, float], list[float]]:
        """Rates since the last call: (ms per second in each state, growth of each total per second). The
        first call counts from zero."""
        self.enter(self.state)
        took = max(self._at - self._last_at, 1e-6)
        ms = {s: (self.seconds[s] - self._last[s]) * 1000 / took for s in STATES}
        before = self._totals or (0,) * len(totals)
        rates = [(now - then) / took for now, then in zip(totals, before, strict=True)]
        self._last, self._last_at = dict(self.seconds), self._at
        self._totals = totals
        return ms, rates


T = TypeVar("T")


def collect_metrics(task: Task) -> TaskMetrics:
    """The task's totals and the rates since the last call."""
    records_out = sum(edge.records_out for edge in task.outputs.edges)
    if not task.outputs.edges:
        records_out = sum(n.metrics.counters.get("numRecordsIn", 0) for n in task.chain.nodes[-1:])
    bytes_in, bytes_out = task.gates.bytes_in, task.outputs.bytes_out
    ms, rates = task.clock.rates((task.records_in, records_out, bytes_in, bytes_out))
    nodes = task.chain.nodes
    operators = []
    for node in nodes:
        gauges = {name: _read(read) for name, read in node.metrics.gauges.items()}
        gauges["currentInputWatermark"] = _shown(node.valve.watermark)
        gauges["currentOutputWatermark"] = _shown(node.output_watermark)
        counters = dict(node.metrics.counters)
        operators.append(
            OperatorMetrics(uid=node.node.uid, name=node.node.name, counters=counters, gauges=gauges)
        )
    inputs = [n.valve.watermark for n in nodes if not n.makes_watermarks]
    outputs = [n.output_watermark for n in nodes]
    return TaskMetrics(
        execution_id=task.descriptor.execution_id,
        vertex_id=task.vertex.id,
        subtask_index=task.descriptor.subtask_index,
        records_in=task.records_in,
        records_out=records_out,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        busy_ms_per_second=ms["busy"],
        idle_ms_per_second=ms["idle"],
        back_pressured_ms_per_second=ms["back-pressured"],
        busy_ms=round(1000 * task.clock.seconds["busy"], 1),
        idle_ms=round(1000 * task.clock.seconds["idle"], 1),
        back_pressured_ms=round(1000 * task.clock.seconds["back-pressured"], 1),
        records_in_per_second=rates[0],
        records_out_per_second=rates[1],
        bytes_in_per_second=rates[2],
        bytes_out_per_second=rates[3],
        in_pool_usage=task.in_pool_usage,
        input_watermark=_shown(min(inputs)) if inputs else None,
        output_watermark=_shown(min(outputs)) if outputs else None,
        operators=tuple(operators),
        watermark_holder=task.watermark_holder(),
        away=_away(task),
        restore_bytes=task.restoring.total_bytes,
        restored_bytes=task.restoring.read_bytes,
        restored_local_bytes=task.restoring.local_bytes,
        restore_read_ms=task.restoring.read_ms,
        restore_load_ms=task.restoring.load_ms,
    )


def _away(task: Task) -> tuple[str, ...]:
    """The servers outside that the sources and sinks of the task wait for, and why."""
    outside = [n.operator for n in task.chain.nodes if isinstance(n.operator, SourceDriver | SinkDriver)]
    return tuple(said for said in (_read(operator.away) for operator in outside) if said)


def _read(gauge: Callable[[], T | None]) -> T | None:
    """The value of a gauge; None if it raises. A gauge may be the user's code, and must not stop the
    report."""
    try:
        return gauge()
    except Exception:
        return None


def _shown(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark
