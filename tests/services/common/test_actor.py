import asyncio

import pytest

from penstock.errors import InternalError
from penstock_services.common.actor import ESCALATE, Actor, RestartPolicy, Supervisor
from penstock_services.common.clock import SystemClock
from penstock_services.common.core import After, Answer, Asked, CancelTimer, EffectFailed, Tick


class Recorder:
    """Remembers its events; what it answers and does is given by a table."""

    def __init__(self, table=None):
        self.events = []
        self.table = table or {}

    def step(self, event, now_ms):
        self.events.append(event)
        if isinstance(event, Asked):
            return [Answer(event.token, event.message)]
        effects = self.table.get(event, ())
        if isinstance(effects, Exception):
            raise effects
        return effects


def actor(core, perform=lambda effect: None, **options):
    return Actor("test", core, perform, SystemClock(), **options)


def test_ask_and_answer(virtual_time):
    async def main():
        a = actor(Recorder())
        running = asyncio.create_task(a.run())
        assert await a.ask("hello") == "hello"
        with pytest.raises(ValueError, match="as an error"):
            await a.ask(ValueError("as an error"))
        running.cancel()

    virtual_time(main())


def test_effects_come_back_as_events(virtual_time):
    async def slow(effect):
        await asyncio.sleep(5)
        return f"{effect} done"

    async def fails(effect):
        raise OSError("disk")

    def perform(effect):
        match effect:
            case "slow":
                return slow(effect)
            case "fails":
                return fails(effect)
            case "raise":
                raise KeyError("at once")
            case _:
                return "plain done" if effect == "plain" else None

    async def main():
        core = Recorder({"go": ["slow", "plain", "none", "fails", "raise"]})
        a = actor(core, perform)
        running = asyncio.create_task(a.run())
        await a.tell("go")
        await asyncio.sleep(10)
        running.cancel()
        # Plain results are handled before the next event; the awaited ones come later.
        assert core.events[:2] == ["go", "plain done"]
        kinds = [(e.effect, type(e.error)) for e in core.events if isinstance(e, EffectFailed)]
        assert kinds == [("raise", KeyError), ("fails", OSError)]
        assert core.events[-1] == "slow done"

    virtual_time(main())


def test_timers(virtual_time):
    async def main():
        core = Recorder(
            {
                "go": [
                    After(100, "a"),
                    After(50, "old", "k"),
                    After(200, "new", "k"),
                    After(10, "x", "gone"),
                ],
                "a": [CancelTimer("nothing")],
                "stop": [CancelTimer("gone")],
            }
        )
        a = actor(core)
        running = asyncio.create_task(a.run())
        await a.tell("go")
        await a.tell("stop")
        await asyncio.sleep(1)
        running.cancel()
        assert core.events == ["go", "stop", "a", "new"]

    virtual_time(main())


class ClockByHand(SystemClock):
    """Its sleepers wake when ``fire`` is called."""

    def __init__(self):
        self.sleepers = []

    async def sleep(self, seconds):
        self.sleepers.append(asyncio.get_running_loop().create_future())
        await self.sleepers[-1]

    def fire(self):
        while self.sleepers:
            self.sleepers.pop().set_result(None)


@pytest.mark.parametrize("mailbox", [2, 8], ids=["waiting for room in the mailbox", "in the mailbox"])
@pytest.mark.parametrize(
    ("stop", "delivered"),
    [(CancelTimer("k"), []), (After(10, "new", "k"), ["new"])],
    ids=["cancelled", "replaced"],
)
def test_a_timer_that_fired_but_was_not_handled_can_still_be_stopped(virtual_time, mailbox, stop, delivered):
    async def main():
        clock = ClockByHand()
        core = Recorder({"go": [After(10, "stale", "k")], "stop": [stop]})
        a = Actor("test", core, lambda effect: None, clock, mailbox=mailbox)
        running = asyncio.create_task(a.run())
        await a.tell("go")
        await asyncio.sleep(1)
        clock.fire()
        assert a.try_tell("stop")  # these two are ahead of the timer's event
        assert a.try_tell("other")
        await asyncio.sleep(1)
        clock.fire()
        await asyncio.sleep(1)
        running.cancel()
        assert core.events == ["go", "stop", "other", *delivered]

    virtual_time(main())


def test_ticks(virtual_time):
    async def main():
        core = Recorder()
        running = asyncio.create_task(actor(core, tick_ms=100).run())
        await asyncio.sleep(1.05)
        running.cancel()
        assert core.events == [Tick()] * 10

    virtual_time(main())


def test_the_mailbox_is_bounded(virtual_time):
    async def main():
        a = actor(Recorder(), mailbox=2)
        assert a.try_tell(1)
        assert a.try_tell(2)
        assert not a.try_tell(3)
        waiting = asyncio.create_task(a.tell(3))
        await asyncio.sleep(0)
        assert not waiting.done()
        running = asyncio.create_task(a.run())
        await waiting
        await asyncio.sleep(1)
        assert a.core.events == [1, 2, 3]
        running.cancel()

    virtual_time(main())


def test_who_asks_a_dying_actor_is_told(virtual_time):
    async def main():
        a = actor(Recorder({"die": RuntimeError("broken")}))
        running = asyncio.create_task(a.run())
        await a.tell("die")
        with pytest.raises(InternalError, match="has ended"):
            await a.ask("hello")
        with pytest.raises(RuntimeError, match="broken"):
            await running
        with pytest.raises(InternalError, match="has ended"):
            await a.tell("more")

    virtual_time(main())


def test_a_failed_child_is_started_again_with_growing_pauses(virtual_time):
    starts = []

    async def child():
        starts.append(round(asyncio.get_running_loop().time() - 1000, 3))
        if len(starts) < 4:
            raise ValueError("again")

    async def main():
        supervisor = Supervisor("root", SystemClock())
        supervisor.start("child", child)
        with pytest.raises(InternalError, match="already"):
            supervisor.start("child", child)
        await asyncio.sleep(5)
        assert starts == [0, 0.05, 0.15, 0.35]
        assert supervisor.children == []

    virtual_time(main())


def test_escalation(virtual_time):
    async def broken():
        raise ValueError("for good")

    async def main():
        supervisor = Supervisor("root", SystemClock())
        supervisor.start("broken", broken, RestartPolicy(max_restarts=2))
        assert str(await supervisor.failed()) == "for good"
        other = Supervisor("other", SystemClock())
        other.start("broken", broken, ESCALATE)
        assert str(await other.failed()) == "for good"
        assert asyncio.get_running_loop().time() < 1001

    virtual_time(main())


def test_failures_far_apart_do_not_escalate(virtual_time):
    starts = []

    async def rarely():
        starts.append(1)
        await asyncio.sleep(100)
        raise ValueError("now and then")

    async def main():
        supervisor = Supervisor("root", SystemClock())
        supervisor.start("rarely", rarely, RestartPolicy(max_restarts=1, within_ms=60_000))
        await asyncio.sleep(1000)
        assert len(starts) >= 9
        await supervisor.close()

    virtual_time(main())


def test_close_ends_all_in_reverse(virtual_time):
    ended = []

    def child(name):
        async def run():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        return run

    async def main():
        supervisor = Supervisor("root", SystemClock())
        for name in "abc":
            supervisor.start(name, child(name))
        await asyncio.sleep(0.1)
        await supervisor.close()
        assert ended == ["c", "b", "a"]

    virtual_time(main())
