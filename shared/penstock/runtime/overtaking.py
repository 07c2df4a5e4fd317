"""Barriers that overtake: when one may, what must be done before, and which elements it passes.

A barrier whose patience is over overtakes at the task's present position. The current work is finished
although the outputs have no credit (up to a bound), the outputs' rows are sent on before the barrier, and
the inputs are recorded up to it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.runtime.elements import Barrier
    from penstock.runtime.environment import Environment
    from penstock.runtime.recording import ChannelContent, Recording
    from penstock.runtime.task import Task


class InFlight:
    """The elements that one checkpoint of a task has overtaken; ``contents`` is complete after ``wait``."""

    def __init__(self, recording: Recording, unreplayed: list[ChannelContent]) -> None:
        self.checkpoint_id = recording.barrier.checkpoint_id
        self._recording = recording
        self._unreplayed = unreplayed
        self._whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if recording.done:
            self._whole.set_result(None)
        else:
            recording.on_done = self._done

    def _done(self) -> None:
        if not self._whole.done():
            self._whole.set_result(None)

    def give_up(self) -> None:
        """The checkpoint was aborted: stop recording."""
        self._whole.cancel()

    async def wait(self) -> None:
        """Waits until the barrier has arrived on every channel. CancelledError: given up."""
        await asyncio.shield(self._whole)

    @property
    def contents(self) -> list[ChannelContent]:
        """First the elements that an earlier overtaking had left over."""
        return [*self._unreplayed, *self._recording.content]

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded elements."""
        return sum(content.nbytes for content in self.contents)


class Overtaking:
    """The overtaking barriers of one task."""

    def __init__(self, task: Task, environment: Environment) -> None:
        self._task = task
        self._now_ms = environment.now_ms
        #: True while the barrier is being taken: no other work may come in between.
        self.taking = False
        #: A barrier that was emitted in order and may still overtake downstream.
        self._leaving: Barrier | None = None
        self._in_flight: InFlight | None = None

    def expect(self, barrier: Barrier) -> None:
        """A barrier has arrived: checks again when its patience is over."""
        at_ms = barrier.overtakes_at_ms
        if at_ms is not None:
            self._task.arm(at_ms)
            self._task.wake()

    def urgent(self) -> bool:
        """A barrier overtakes as soon as the task has done the work before it, which it does without credit."""
        task = self._task
        if self._leaving is not None:
            self._hurry_out()
        if self.taking:
            return not task.outputs.overdrawn
        announced = task.gates.announced
        if announced is None or not self._is_due(announced):
            return False
        return task.gates.urgent and not task.outputs.overdrawn

    def overtake(self) -> tuple[Barrier, float, InFlight]:
        """(Barrier, ms since it arrived, the elements that it has overtaken)."""
        task = self._task
        unreplayed = task.replay.remaining() if task.replay is not None else []
        barrier, waited_ms, recording = task.gates.overtake()
        self.give_up(barrier.checkpoint_id)
        self._in_flight = InFlight(recording, unreplayed)
        return barrier, waited_ms, self._in_flight

    def take(self, before: Iterator[None], barrier: Barrier, overtaken: InFlight | None) -> Iterator[None]:
        """Output that belongs before the barrier, then the barrier."""
        self.taking = overtaken is not None or self._is_due(barrier)
        yield from before
        outputs = self._task.outputs
        if self.taking:
            outputs.emit(barrier.overtaking())
            outputs.push_on()
        else:
            outputs.emit(barrier)
            if barrier.patience_ms is not None and outputs.blocked:
                self._leaving = barrier
                self.expect(barrier)
        self.taking = False

    def give_up(self, checkpoint_id: int) -> None:
        """The checkpoint, or one before it, is over."""
        if self._in_flight is not None and self._in_flight.checkpoint_id <= checkpoint_id:
            self._in_flight.give_up()
            self._in_flight = None
        if self._leaving is not None and self._leaving.checkpoint_id <= checkpoint_id:
            self._leaving = None

    def _hurry_out(self) -> None:
        leaving, outputs = self._leaving, self._task.outputs
        if leaving is None or not outputs.blocked:
            self._leaving = None
        elif self._is_due(leaving):
            self._leaving = None
            outputs.push_on()

    def _is_due(self, barrier: Barrier) -> bool:
        at_ms = barrier.overtakes_at_ms
        if at_ms is None:
            return False
        if self._now_ms() >= at_ms:
            return True
        self._task.arm(at_ms)
        return False
