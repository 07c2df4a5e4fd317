"""Input gates: the queues of a task's channels, merged into one sequence of events.

``InputGates`` is a pure core: channels push elements in, ``poll`` gives the next event. It aligns barriers
over all channels of all gates, merges watermarks and idleness for each gate, and concatenates small batches
so that an operator's fixed cost is paid once.

Several checkpoints may be in flight. With exactly-once, one is aligned at a time: the next one's barrier
waits on the channels that are held. With at-least-once nothing waits (``counted_barriers``).

A barrier that may overtake is *announced* as soon as it arrives, even if elements are queued before it. When
its patience is over, the task lets it ``overtake``: the elements before it are recorded as in flight and stay
queued. Channels whose rows must stay with their subtask (forward, broadcast) are not overtaken: the task
first processes their elements up to the barrier.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.operators.idleness import Idleness
from penstock.operators.watermarks import WatermarkValve
from penstock.runtime.channels import (
    BarrierAligned,
    GateBatch,
    GateEnded,
    GateEvent,
    GateStatus,
    GateWatermark,
    InputChannel,
)
from penstock.runtime.counted_barriers import CountedBarriers
from penstock.runtime.elements import Barrier, Control, Element, EndOfInput, Watermark, WatermarkStatus
from penstock.runtime.recording import ChannelContent, Recording
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Batches are concatenated while the result is below this; larger ones pass without a copy.
MERGE_ROWS = 8_192


class InputGates:
    """All gates of one task.

    ``names[g]``: one name for each channel of gate g. ``exactly_once``: a channel that has delivered its
    barrier waits for the others. ``on_ready``: called when ``poll`` has an event again after it had none;
    ``on_announced``: a barrier that may overtake has arrived.
    """

    def __init__(
        self,
        names: Sequence[Sequence[str]],
        *,
        exactly_once: bool = True,
        on_ready: Callable[[], None] = lambda: None,
        on_announced: Callable[[Barrier], None] = lambda _: None,
        time_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._time_s = time_s
        self.channels = [
            [InputChannel(self, g, i, name) for i, name in enumerate(gate)] for g, gate in enumerate(names)
        ]
        self.on_ready = on_ready
        self.on_announced = on_announced
        self._exactly_once = exactly_once
        self._valves = [WatermarkValve(len(gate)) for gate in names]
        self._live = [len(gate) for gate in names]
        self._ready: deque[InputChannel] = deque()
        self._events: deque[GateEvent] = deque()
        self._aligning: Barrier | None = None
        #: Channels that have delivered a barrier, in the order in which they are released.
        self._delivered: dict[InputChannel, None] = {}
        self._align_start = 0.0
        self._counted = CountedBarriers(time_s)
        #: Barriers up to this checkpoint id were taken, or replaced by newer ones.
        self._last_id = 0
        #: Ids of aborted checkpoints above ``_last_id``.
        self._aborted: set[int] = set()
        #: The newest barrier that may overtake and was not taken yet.
        self.announced: Barrier | None = None
        self._announced_at = 0.0
        self.recording: Recording | None = None
        self.bytes_in = 0
        for gate, live in enumerate(self._live):
            if not live:
                self._events.append(GateEnded(gate))

    # -- what a task asks ------------------------------------------------------------

    @property
    def all_ended(self) -> bool:
        """Whether all gates have ended."""
        return not any(self._live)

    @property
    def has_events(self) -> bool:
        """Whether ``poll`` has an event."""
        return bool(self._events or self._ready)

    def poll(self, max_rows: int) -> GateEvent | None:
        """The next event, or None if no channel has one. A batch has at most ``max_rows`` rows; the rest of a
        batch that was cut stays queued."""
        while True:
            if self._events:
                return self._next_event()
            if not self._ready:
                return None
            event = self._poll_first(max_rows)
            if event is not None:
                return event

    def queued_bytes(self) -> int:
        """Bytes of the queued elements of all channels."""
        return sum(n for gate in self.channels for c in gate for _, n in c.queue)

    def watermark_holder(self) -> str | None:
        """The name of the channel with the lowest watermark; None if no gate has two channels that count."""
        for gate, valve in zip(self.channels, self._valves, strict=True):
            holder = valve.holder()
            if holder is not None:
                return gate[holder].name
        return None

    def abort(self, checkpoint_id: int) -> None:
        """Stops aligning an aborted checkpoint and ignores its barriers. Other checkpoints continue."""
        if checkpoint_id > self._last_id:
            self._aborted.add(checkpoint_id)
        self._counted.forget(checkpoint_id)
        if self._aligning is not None and self._aligning.checkpoint_id == checkpoint_id:
            self._release()
        self.forget(checkpoint_id)
        if self.recording is not None and self.recording.barrier.checkpoint_id <= checkpoint_id:
            self.recording = None

    # -- overtaking ------------------------------------------------------------------

    def urge(self, max_rows: int) -> GateEvent | None:
        """The next event that must be processed before the announced barrier may overtake; None if there is
        none.

        It comes from a channel that is not overtaken and on which the barrier is queued.
        """
        while not self._events:
            channel = next((c for c in self._not_reached() if self._barrier_queued(c)), None)
            if channel is None:
                return None
            self._ready.remove(channel)
            self._ready.appendleft(channel)
            event = self._poll_first(max_rows)
            if event is not None:
                return event
        return self._next_event()

    @property
    def urgent(self) -> bool:
        """Whether the announced barrier may overtake, or ``urge`` has an event that must come before it."""
        if self.announced is None:
            return False
        before = list(self._not_reached())
        return bool(self._events) or not before or any(self._barrier_queued(c) for c in before)

    @property
    def may_overtake(self) -> bool:
        """Whether the channels that are not overtaken have no elements left before the announced barrier."""
        return self.announced is not None and not self._events and not any(True for _ in self._not_reached())

    def overtake(self) -> tuple[Barrier, float, Recording]:
        """Takes the announced barrier now. Returns the barrier, the ms since its announcement, and the
        elements in flight, which are recorded until the barrier has arrived on every channel."""
        barrier = self.announced
        if barrier is None:
            raise InternalError("no barrier is there that may overtake")
        recording = Recording(barrier)
        for gate, valve in zip(self.channels, self._valves, strict=True):
            for channel in gate:
                if not channel.ended and channel not in self._delivered:
                    recording.add(channel, *valve.position(channel.index))
        took_ms = (self._time_s() - self._announced_at) * 1000
        self._over(barrier.checkpoint_id)
        self.announced = None
        self.recording = None if recording.done else recording
        self._release()
        return barrier, took_ms, recording

    def queued_content(self) -> list[ChannelContent]:
        """The queued elements of every channel, without barriers."""
        out = []
        for valve, gate in zip(self._valves, self.channels, strict=True):
            for channel in gate:
                content = ChannelContent(channel.gate, *valve.position(channel.index))
                for element, nbytes in channel.queue:
                    content.add(element, nbytes)
                out.append(content)
        return out

    def announce(self, barrier: Barrier) -> None:
        """Announces a barrier that may overtake. It came on a channel, or from the coordinator."""
        checkpoint_id, current = barrier.checkpoint_id, self.announced
        over = max(self._last_id, self._aligning.checkpoint_id - 1 if self._aligning else 0)
        if checkpoint_id <= over or checkpoint_id in self._aborted or not self._exactly_once:
            return
        if current is None or checkpoint_id > current.checkpoint_id:
            self._announced_at = self._time_s()
        elif checkpoint_id < current.checkpoint_id or barrier.patience_ms >= current.patience_ms:  # type: ignore[operator]
            return
        if self._aligning is not None and self._aligning.checkpoint_id < checkpoint_id:
            self._release()
        self.announced = barrier
        self.on_announced(barrier)

    def forget(self, checkpoint_id: int) -> None:
        """Withdraws the announced barrier: the checkpoint was taken in order, or was aborted."""
        if self.announced is not None and self.announced.checkpoint_id <= checkpoint_id:
            self.announced = None

    def record(self, channel: InputChannel, element: Element, nbytes: int) -> None:
        """Records an element that arrived on a channel while elements in flight are recorded."""
        recording = self.recording
        assert recording is not None
        recording.arrived(channel, element, nbytes)
        if recording.done:
            self.recording = None

    def _not_reached(self) -> Iterator[InputChannel]:
        """Live channels that may not be overtaken and have not delivered the announced barrier."""
        for gate in self.channels:
            for channel in gate:
                if not channel.overtakable and not channel.ended and channel not in self._delivered:
                    yield channel

    def _barrier_queued(self, channel: InputChannel) -> bool:
        announced = self.announced
        return announced is not None and any(
            isinstance(e, EndOfInput)
            or (isinstance(e, Barrier) and e.checkpoint_id >= announced.checkpoint_id)
            for e, _ in channel.queue
        )

    # -- inside ----------------------------------------------------------------------

    def enlist(self, channel: InputChannel, *, notify: bool = True) -> None:
        """Add a channel to the list of channels with queued elements; call ``on_ready`` if it is the first event."""
        first = not self._ready and not self._events
        channel.listed = True
        self._ready.append(channel)
        if notify and first:
            self.on_ready()

    def _next_event(self) -> GateEvent:
        event = self._events.popleft()
        if isinstance(event, BarrierAligned):
            self.forget(event.barrier.checkpoint_id)
        return event

    def _poll_first(self, max_rows: int) -> GateBatch | None:
        """Rows of the first channel that has some; a control element becomes events."""
        channel = self._ready[0]
        if isinstance(channel.queue[0][0], Batch):
            return GateBatch(channel.gate, self._gather(channel.gate, max_rows))
        self._ready.popleft()
        channel.listed = False
        element, nbytes = channel.queue.popleft()
        self._control(channel, element)  # type: ignore[arg-type]
        channel._popped(nbytes)
        if channel.queue and not channel.aligned and not channel.listed:
            self.enlist(channel, notify=False)
        return None

    def _gather(self, gate: int, max_rows: int) -> Batch:
        parts: list[Batch] = []
        rows = 0
        enough = min(max_rows, MERGE_ROWS)
        for _ in range(len(self._ready)):
            channel = self._ready.popleft()
            queue = channel.queue
            while channel.gate == gate and queue and rows < enough:
                batch, nbytes = queue[0]
                if not isinstance(batch, Batch):
                    break
                take = max_rows - rows
                if batch.num_rows > take:
                    if parts and batch.num_rows >= MERGE_ROWS:
                        rows = enough  # To cut a large batch only to copy its parts gains nothing.
                        break
                    cost = nbytes * take // batch.num_rows
                    queue[0] = (batch.slice(take), nbytes - cost)
                    batch, nbytes = batch.slice(0, take), cost
                elif parts and rows + batch.num_rows > 2 * MERGE_ROWS:
                    rows = enough
                    break
                else:
                    queue.popleft()
                parts.append(batch)
                rows += batch.num_rows
                channel._popped(nbytes)
            if queue:
                self._ready.append(channel)
            else:
                channel.listed = False
            if rows >= enough:
                break
        return Batch.concat(parts)

    def _control(self, channel: InputChannel, element: Control) -> None:
        match element:
            case Watermark(value=value):
                self._valves[channel.gate].advance(channel.index, value)
                self._tell(channel.gate)
            case WatermarkStatus(idle=idle):
                self._valves[channel.gate].set_idle(channel.index, idle)
                self._tell(channel.gate)
            case Barrier():
                self._barrier(channel, element)
            case EndOfInput():
                self._end(channel)

    def _tell(self, gate: int) -> None:
        valve = self._valves[gate]
        risen, idle = valve.take_changes()
        if idle is Idleness.ACTIVE:
            self._events.append(GateStatus(gate, idle))
        if risen is not None:
            self._events.append(GateWatermark(gate, risen))
        if idle:
            self._events.append(GateStatus(gate, idle))

    def _end(self, channel: InputChannel) -> None:
        if channel.queue:
            raise InternalError(f"data after the end of channel {channel.name}")
        channel.ended = True
        if channel.window is not None:
            channel.window.close()
            channel.window = None
        gate = channel.gate
        self._live[gate] -= 1
        self._valves[gate].end(channel.index)
        self._tell(gate)
        self._delivered.pop(channel, None)
        self._counted.ended(channel)
        self._check_aligned()
        self._check_counted()
        if not self._live[gate]:
            self._events.append(GateEnded(gate))

    def _barrier(self, channel: InputChannel, barrier: Barrier) -> None:
        announced = self.announced
        if barrier.checkpoint_id <= self._last_id or barrier.checkpoint_id in self._aborted:
            return
        if not self._exactly_once:
            self._counted.arrived(barrier, channel)
            self._check_counted()
            return
        if announced is not None and barrier.checkpoint_id != announced.checkpoint_id:
            if barrier.checkpoint_id < announced.checkpoint_id:
                return
            self.announced = None
        current = self._aligning
        if current is None or barrier.checkpoint_id > current.checkpoint_id:
            # This channel will not bring the older barrier: an upstream task has given that checkpoint up.
            self._release()
            self._aligning = barrier
            self._align_start = self._time_s()
        elif barrier.checkpoint_id < current.checkpoint_id:
            return
        self._delivered[channel] = None
        channel.aligned = True
        self._check_aligned()

    def _check_aligned(self) -> None:
        barrier = self._aligning
        if barrier is None or len(self._delivered) < sum(self._live):
            return
        took = (self._time_s() - self._align_start) * 1000
        self._over(barrier.checkpoint_id)
        self._events.append(BarrierAligned(barrier, took))
        self._release()

    def _check_counted(self) -> None:
        """Reports each at-least-once checkpoint whose barrier came on all live channels."""
        for barrier, took_ms in self._counted.complete(sum(self._live)):
            self._over(barrier.checkpoint_id)
            self._events.append(BarrierAligned(barrier, took_ms))

    def _over(self, checkpoint_id: int) -> None:
        self._last_id = checkpoint_id
        self._aborted = {n for n in self._aborted if n > checkpoint_id}

    def _release(self) -> None:
        self._aligning = None
        for channel in self._delivered:
            channel.aligned = False
            if channel.queue and not channel.listed:
                self.enlist(channel, notify=False)
        self._delivered.clear()
        if self._ready:
            self.on_ready()
