"""Barriers that overtake: when one may, what must be done before, and which elements it passes.

A barrier whose patience is over overtakes at the task's present position. The task finishes its current work
even without credit (up to a bound), sends the rows in its outputs before the barrier, and records the
elements of its inputs up to the barrier.
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
        """Stops recording, because the checkpoint is over."""
        self._whole.cancel()

    async def wait(self) -> None:
        """Waits until the barrier has arrived on every channel. Raises CancelledError if the recording was
        given up."""
        await asyncio.shield(self._whole)

    @property
    def contents(self) -> list[ChannelContent]:
        """The elements in flight: first restored ones that are not replayed yet, then the recorded ones."""
        return [*self._unreplayed, *self._recording.content]

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded elements."""
        return sum(content.nbytes for content in self.contents)


class Overtaking:
    """Decides when a barrier overtakes in one task, and takes it."""

    def __init__(self, task: Task, environment: Environment) -> None:
        self._task = task
        self._now_ms = environment.now_ms
        #: True while the barrier is being taken: no other work may come in between.
        self.taking = False
        #: A barrier that was emitted in order and may still overtake downstream.
        self._leaving: Barrier | None = None
        self._in_flight: InFlight | None = None

    def expect(self, barrier: Barrier) -> None:
        """Wakes the task when the patience of an arrived barrier is over."""
        at_ms = barrier.overtakes_at_ms
        if at_ms is not None:
            self._task.arm(at_ms)
            self._task.wake()

    def urgent(self) -> bool:
        """Whether the task must work without credit, because a barrier overtakes after the work before it is
        done."""
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
        """Takes the announced barrier: (barrier, ms since its announcement, the elements that it has
        overtaken)."""
        task = self._task
        unreplayed = task.replay.remaining() if task.replay is not None else []
        barrier, waited_ms, recording = task.gates.overtake()
        self.give_up(barrier.checkpoint_id)
        self._in_flight = InFlight(recording, unreplayed)
        return barrier, waited_ms, self._in_flight

    def take(self, before: Iterator[None], barrier: Barrier, overtaken: InFlight | None) -> Iterator[None]:
        """Emits the output that belongs before the barrier, then the barrier."""
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
        """Drops overtaking of this checkpoint and of earlier ones, which are over."""
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
