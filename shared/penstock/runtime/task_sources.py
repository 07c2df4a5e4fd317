"""A task's sources: when they are polled, how they wait, and their watermarks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.config import BUFFER_TIMEOUT_MS
from penstock.operators.budget import source_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.operators.budget import RowBudget
    from penstock.runtime.chain import Chain
    from penstock.runtime.chain_nodes import SourceNode
    from penstock.runtime.environment import Environment

#: A poll that returns fewer rows than this is a trickle: the source has nearly run empty.
TRICKLE_ROWS = 128
#: Even a small batch costs about 0.3 ms, so rows of a trickle gather for this long, or for the buffer timeout
#: if that is shorter.
TRICKLE_PAUSE_S = 0.002


class TaskSources:
    """The sources of a task. ``spawn`` starts a background task of the task; ``wake``: there may be rows now."""

    def __init__(
        self,
        chain: Chain,
        environment: Environment,
        *,
        spawn: Callable[[Any], asyncio.Task[Any]],
        wake: Callable[[], None],
    ) -> None:
        self._chain = chain
        specs = [node.node.spec for node in chain.nodes]
        for node in chain.sources:
            node.operator.budget = source_budget(specs)
        self._time_s = environment.time_s
        self._spawn = spawn
        self._wake = wake
        #: Time between two polls that bring a trickle. A lone row after a pause never waits.
        self._trickle_pause_s = min(TRICKLE_PAUSE_S, BUFFER_TIMEOUT_MS.read(environment.config) / 1000)
        self._waits: dict[SourceNode, asyncio.Task[None]] = {}
        #: Sources that gave a trickle → when to poll them again at the earliest.
        self._resting: dict[SourceNode, float] = {}
        self._ended: set[SourceNode] = set()

    @property
    def all_ended(self) -> bool:
        """Whether all sources have ended."""
        return len(self._ended) == len(self._chain.sources)

    def due(self, now_ms: int) -> Iterator[None] | None:
        """The work to emit a watermark or idleness; None if none is due."""
        for node in self._chain.sources:
            if node in self._ended:
                continue
            source = node.operator
            watermark, idle = source.position(now_ms)
            if watermark > node.output_watermark or idle != node.idle:
                return self._chain.made_watermark(node, watermark, idle)
        return None

    def poll(self) -> Iterator[None] | None:
        """The work for rows that a source has now, or for the end of a source; None if there is none."""
        for node in self._chain.sources:
            if node not in self._ended:
                work = self._poll(node)
                if work is not None:
                    return work
        return None

    def _poll(self, node: SourceNode) -> Iterator[None] | None:
        source = node.operator
        if node not in self._resting:
            started = self._time_s()
            rows = source.poll()
            if rows is not None:
                now = self._time_s()
                # A trickle: let rows gather while the loop runs, instead of polling for each.
                if rows.num_rows < TRICKLE_ROWS:
                    self._resting[node] = now + self._trickle_pause_s
                work = self._chain.emit(node, iter((rows,)))
                return timed(work, rows.num_rows, source.budget, self._time_s, now - started)
        if source.ended():
            self._ended.add(node)
            return self._chain.end_source(node)
        if node not in self._waits:
            self._waits[node] = self._spawn(self._await(node))
        return None

    async def _await(self, node: SourceNode) -> None:
        source = node.operator
        try:
            await source.wait()
            early_s = self._resting.get(node, 0.0) - self._time_s()
            if early_s > 0:
                await asyncio.sleep(early_s)
        except Exception as err:
            raise self._chain.blame(err, node) from None
        finally:
            self._resting.pop(node, None)
            del self._waits[node]
            self._wake()

    def next_position_ms(self, now_ms: int) -> int | None:
        """The latest time (ms) at which ``due`` must be asked again; None if there is none."""
        times = [
            node.operator.next_position_ms(now_ms) for node in self._chain.sources if node not in self._ended
        ]
        return min((at for at in times if at is not None), default=None)

    def not_polled(self, for_ms: int) -> None:
        """Back-pressure kept the task from polling for ``for_ms`` milliseconds."""
        for node in self._chain.sources:
            node.operator.not_polled(for_ms)

    def end_all(self) -> Iterator[None]:
        """Stop with drain: event time ends here."""
        for node in self._chain.sources:
            if node not in self._ended:
                self._ended.add(node)
                node.operator.stop_reading()
                yield from self._chain.end_source(node)

    def watermark_holder(self) -> str | None:
        """The split that holds the watermark back; None if there is none."""
        for node in self._chain.sources:
            holder = node.operator.watermark_holder()
            if holder is not None:
                return holder
        return None


def timed(
    work: Iterator[None], rows: int, budget: RowBudget, time_s: Callable[[], float], before_s: float = 0.0
) -> Iterator[None]:
    """Measures the time that the work takes between pulls, so that the next batch is cut to fit a step."""
    spent, at = before_s, time_s()
    for _ in work:
        spent += time_s() - at
        yield
        at = time_s()
    budget.note(rows, spent + time_s() - at)
