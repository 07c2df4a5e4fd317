"""The core on its own: messages in, commands out, time by hand."""

import itertools
import random
from types import SimpleNamespace

import pytest

from penstock.errors import BrokerError
from penstock.messages.cluster import Ack, Refused
from penstock.messages.resource_manager import (
    DeclareReply,
    DeclareSlots,
    DeregisterTaskManager,
    RegisterReply,
    RegisterTaskManager,
    RequestClusterOverview,
    SlotStatus,
)
from penstock_services.common.core import Answer, Asked, EffectFailed, Tick
from penstock_services.resourcemanager.core import (
    NOTICE_AGAIN_MS,
    WATCH_AGAIN_MS,
    ResourceManagerCore,
    Settings,
)
from penstock_services.resourcemanager.effects import (
    Abdicate,
    AllocateAnswered,
    Connection,
    NotifyJob,
    Probe,
    Probed,
    SendAllocate,
    Watch,
    WatchEnded,
)
from penstock_services.resourcemanager.registry import TaskManager, page_of


class Cluster:
    """A core with task managers that do as they are told."""

    def __init__(self, settle_ms=0, epoch=5):
        self.now = 0
        self.core = ResourceManagerCore("rm", epoch, Settings(settle_ms=settle_ms), 0)
        self.tokens = itertools.count(1)
        self.slots = {}
        self.pids = {}
        self.watched = []

    def step(self, event):
        effects = list(self.core.step(event, self.now))
        self.watched += [e for e in effects if isinstance(e, Watch)]
        return [e for e in effects if not isinstance(e, Watch)]

    def ask(self, message):
        token = next(self.tokens)
        effects = self.step(Asked(token, message))
        [answer] = [e for e in effects if isinstance(e, Answer)]
        assert answer.token == token
        return answer.reply, [e for e in effects if not isinstance(e, Answer)]

    def register(self, manager, slots=None, pid=1):
        """A heartbeat; ``slots``: how many, at first."""
        if slots is not None:
            self.slots[manager] = [SlotStatus(index=i, state="free") for i in range(slots)]
        self.pids[manager] = pid
        return self.ask(self.report(manager))

    def report(self, manager):
        return RegisterTaskManager(
            taskmanager_id=manager,
            host="h",
            pid=self.pids[manager],
            data_host="h",
            data_port=1,
            slots=tuple(self.slots[manager]),
        )

    def declare(self, job, needed, epoch=1):
        return self.ask(DeclareSlots(job_id=job, epoch=epoch, needed=needed))

    def take(self, effects):
        """The task managers carry the allocations out (the next report shows them)."""
        for effect in effects:
            assert isinstance(effect, SendAllocate), effect
            assert self.take_one(effect) == []

    def take_one(self, effect):
        message = effect.message
        self.slots[effect.taskmanager_id][message.slot_index] = SlotStatus(
            index=message.slot_index,
            state="allocated",
            job_id=message.job_id,
            allocation_id=message.allocation_id,
        )
        return self.step(AllocateAnswered(message.allocation_id))

    def later(self, ms, beat=()):
        """Time passes tick by tick, ``beat`` sending heartbeats; returns the effects."""
        effects = []
        for _ in range(ms // 100):
            self.now += 100
            if self.now % 1000 == 0:
                for manager in beat:
                    effects += self.register(manager)[1]
            effects += self.step(Tick())
        return effects


def placed(effects):
    return [(e.message.job_id, e.taskmanager_id, e.message.slot_index) for e in effects]


def test_registration_is_answered_with_the_epoch():
    reply, effects = Cluster().register("t1", 2)
    assert reply == RegisterReply(resourcemanager_id="rm", epoch=5)
    assert effects == []


def test_a_declared_need_is_met_with_fenced_commands():
    c = Cluster()
    c.register("t1", 2)
    reply, effects = c.declare("j", 2)
    assert placed(effects) == [("j", "t1", 0), ("j", "t1", 1)]
    assert {e.message.epoch for e in effects} == {5}
    assert len({e.message.allocation_id for e in effects}) == 2
    assert reply == DeclareReply(allocated=2, missing=0, total=2, free=0, epoch=5)
    # Repeating the declaration, and a report that left before the command arrived, add nothing.
    assert c.declare("j", 2)[1] == []
    assert c.register("t1")[1] == []
    c.take(effects)
    assert c.register("t1")[1] == []
    assert c.declare("j", 2)[0] == DeclareReply(allocated=2, missing=0, total=2, free=0, epoch=5)


def test_waiting_until_a_task_manager_is_added():
    c = Cluster()
    c.register("t1", 1)
    c.take(c.declare("j1", 1)[1])
    reply, effects = c.declare("j2", 1)
    assert (reply, effects) == (DeclareReply(allocated=0, missing=1, total=1, free=0, epoch=5), [])
    assert placed(c.register("t2", 1)[1]) == [("j2", "t2", 0)]


def test_a_freed_slot_goes_to_who_waits():
    c = Cluster()
    c.register("t1", 1)
    c.take(c.declare("j1", 1)[1])
    c.register("t1")
    c.declare("j2", 1)
    c.declare("j1", 0)
    c.slots["t1"] = [SlotStatus(index=0, state="free")]
    assert placed(c.register("t1")[1]) == [("j2", "t1", 0)]


def test_who_waits_is_told_for_what():
    c = Cluster()
    c.register("t1", 1)
    c.declare("j", 3)
    notices = [e for e in c.later(3000, beat=["t1"]) if isinstance(e, NotifyJob)]
    assert [(n.message.missing, n.message.total, n.message.free) for n in notices] == [(3, 1, 1)]
    assert not notices[0].until_answered
    # Told again when the numbers change, and now and then.
    [changed] = c.register("t2", 1)[1]
    assert (changed.message.missing, changed.message.total) == (3, 2)
    for _ in range(NOTICE_AGAIN_MS // 1000):
        c.declare("j", 3)
        again = c.later(1000, beat=["t1", "t2"])
    assert [type(e) for e in again] == [NotifyJob]


def test_a_silent_task_manager_is_lost_after_the_timeout():
    c = Cluster()
    c.register("t1", 1)
    c.register("t2", 1)
    c.take(c.declare("j", 2)[1])
    c.register("t1")
    c.register("t2")
    effects = []
    for _ in range(11):
        c.declare("j", 2)
        effects += [e for e in c.later(1000, beat=["t1"]) if not isinstance(e, Probe)]
    [lost] = effects[:1]
    assert (lost.job_id, lost.message.taskmanager_id, lost.until_answered) == ("j", "t2", True)
    assert "no heartbeat for" in lost.message.reason
    assert c.declare("j", 2)[0] == DeclareReply(allocated=1, missing=1, total=1, free=0, epoch=5)


def test_a_gone_connection_is_found_by_probes_at_once():
    c = Cluster()
    c.register("t1", 1)
    c.take(c.declare("j", 1)[1])
    c.register("t1")
    assert c.later(1200) == []
    assert c.later(100) == [Probe("t1")]
    assert c.later(100) == []  # one at a time
    assert c.step(Probed("t1", gone=True)) == []
    assert c.later(100) == [Probe("t1")]
    [lost] = c.step(Probed("t1", gone=True))
    assert "connection to the broker is gone" in lost.message.reason
    assert c.core.registry.total == 0


def test_a_watched_connection_that_ends_and_one_probe_are_enough():
    c = Cluster()
    c.register("t1", 1)
    [watch] = c.watched
    assert (watch.taskmanager_id, watch.host, watch.port) == ("t1", "h", 1)
    c.take(c.declare("j", 1)[1])
    c.register("t1")
    assert len(c.watched) == 1, "one at a time"
    assert c.step(WatchEnded("t1", watch.pid, connected=True)) == [Probe("t1", urgent=True)]
    [lost] = c.step(Probed("t1", gone=True))
    assert lost.message.taskmanager_id == "t1"


@pytest.mark.parametrize("connected", [True, False])
def test_a_connection_that_ends_alone_says_nothing(connected):
    c = Cluster()
    c.register("t1", 1)
    [watch] = c.watched
    c.step(WatchEnded("t1", watch.pid, connected))
    if connected:
        assert c.step(Probed("t1", gone=False)) == []
    assert c.core.registry.total == 1
    c.register("t1")
    assert len(c.watched) == 1, "not at once again"
    c.now += WATCH_AGAIN_MS
    c.register("t1")
    assert len(c.watched) == 2
    assert c.step(WatchEnded("t1", watch.pid + 1, connected=True)) == [], "another process"


def test_probes_that_say_nothing_cost_nothing():
    c = Cluster()
    c.register("t1", 1)
    c.later(1300)
    assert c.step(Probed("t1", gone=True)) == []
    assert c.later(100) == [Probe("t1")]
    assert c.step(Probed("t1", gone=False)) == []
    assert c.later(100) == [Probe("t1")]
    assert c.step(Probed("t1", gone=True)) == []
    assert c.core.registry.total == 1
    # And one that is in doubt gets no new work.
    assert c.declare("j", 1)[1] == []
    assert placed(c.register("t1")[1]) == [("j", "t1", 0)]


def test_our_own_broken_connection_is_nobodys_death():
    c = Cluster()
    c.register("t1", 1)
    assert c.step(Connection(False)) == []
    assert c.later(60_000) == []
    assert c.step(Connection(True)) == []
    assert c.later(9_000) == []
    c.register("t1")
    assert c.core.registry.total == 1


def test_a_broker_that_stands_still_is_nobodys_death():
    """Its connections stay open, and nobody at all is heard; then one is first."""
    c = Cluster()
    c.register("t1", 1)
    c.register("t2", 1)
    c.take(c.declare("j", 2)[1])
    assert all(isinstance(e, Probe) for e in c.later(30_000))
    assert c.register("t2")[1] == []
    assert all(isinstance(e, Probe) for e in c.later(9_000, beat=["t2"]))
    assert c.core.registry.total == 2
    assert list(c.core.jobs) == ["j"]
    # From there on silence counts again.
    [lost] = [e for e in c.later(2_000, beat=["t2"]) if isinstance(e, NotifyJob)]
    assert lost.message.taskmanager_id == "t1"


def test_standing_still_is_nobodys_death():
    c = Cluster()
    c.register("t1", 1)
    c.now += 60_000  # SIGSTOP
    assert c.step(Tick()) == []
    assert c.core.registry.total == 1


def test_leaving_is_told_at_once():
    c = Cluster()
    c.register("t1", 1)
    c.take(c.declare("j", 1)[1])
    c.register("t1")
    reply, [lost, *rest] = c.ask(DeregisterTaskManager(taskmanager_id="t1", reason="shut down"))
    assert reply == Ack()
    assert "it left: shut down" in lost.message.reason
    assert rest == []
    assert c.ask(DeregisterTaskManager(taskmanager_id="t1"))[1] == []


def test_a_restarted_task_manager_of_the_same_name_lost_its_slots():
    c = Cluster()
    c.register("t1", 1)
    c.take(c.declare("j", 1)[1])
    c.register("t1")
    effects = c.register("t1", 1, pid=2)[1]
    assert [type(e) for e in effects] == [NotifyJob, SendAllocate]
    assert "started again" in effects[0].message.reason


@pytest.mark.parametrize("fenced", [False, True])
def test_a_refused_allocation_is_tried_elsewhere_or_ends_our_reign(fenced):
    c = Cluster()
    c.register("t1", 1)
    c.register("t2", 1)
    [first] = c.declare("j", 1)[1]
    effects = c.step(AllocateAnswered(first.message.allocation_id, Refused(reason="no", fenced=fenced)))
    assert [e for e in effects if isinstance(e, Abdicate)] == ([Abdicate("no")] if fenced else [])
    [again] = [e for e in effects if isinstance(e, SendAllocate)]
    assert again.message.allocation_id != first.message.allocation_id


def test_an_allocation_without_an_answer_is_as_the_report_says():
    c = Cluster()
    c.register("t1", 1)
    [sent] = c.declare("j", 1)[1]
    # It did arrive: only the answer was lost.
    c.slots["t1"] = [
        SlotStatus(index=0, state="allocated", job_id="j", allocation_id=sent.message.allocation_id)
    ]
    c.register("t1")
    assert c.step(EffectFailed(sent, BrokerError("no answer"))) == []
    assert c.declare("j", 1)[0].allocated == 1


def test_an_acknowledged_allocation_that_never_shows_is_given_again():
    c = Cluster()
    c.register("t1", 1)
    [sent] = c.declare("j", 1)[1]
    c.step(AllocateAnswered(sent.message.allocation_id))
    assert c.register("t1")[1] == []  # may have left before
    effects = []
    for _ in range(4):
        c.declare("j", 1)
        effects += c.later(1000, beat=["t1"])
    assert placed(effects) == [("j", "t1", 0)]


def test_a_master_that_is_not_heard_loses_its_claim_but_no_slot():
    c = Cluster()
    c.register("t1", 1)
    c.take(c.declare("j1", 1)[1])
    c.register("t1")
    c.declare("j2", 1)
    c.later(11_000, beat=["t1"])
    assert c.core.jobs == {}
    assert c.core.registry.of_job("j1") == 1
    assert c.register("t2", 1)[1] == []


def test_an_old_master_is_refused():
    c = Cluster()
    c.declare("j", 2, epoch=7)
    reply, effects = c.declare("j", 4, epoch=6)
    assert reply.fenced
    assert effects == []
    assert c.core.jobs["j"].needed == 2


def test_a_new_leader_rebuilds_before_it_grants():
    c = Cluster(settle_ms=1500, epoch=9)
    assert c.declare("j", 1) == (DeclareReply(allocated=0, missing=1, total=0, free=0, epoch=9), [])
    assert c.register("t2", 1)[1] == []  # free, but t1 may hold a slot of the job
    c.slots["t1"] = [SlotStatus(index=0, state="active", job_id="j", allocation_id="a5-1", pid=7)]
    c.register("t1")
    assert c.later(2000, beat=["t1", "t2"]) == []
    assert c.declare("j", 1)[0] == DeclareReply(allocated=1, missing=0, total=2, free=1, epoch=9)
    assert placed(c.declare("j", 2)[1]) == [("j", "t2", 0)]


def test_overview():
    c = Cluster()
    c.register("t1", 2)
    c.take(c.declare("j", 1)[1])
    overview, _ = c.ask(RequestClusterOverview())
    assert (overview.slots_total, overview.slots_free, overview.epoch) == (2, 1, 5)
    [manager] = overview.taskmanagers
    assert [(s.state, s.job_id) for s in manager.slots] == [("allocated", "j"), ("free", None)]


@pytest.mark.parametrize(
    ("slots", "pages"), [(1, [500, 500, 200]), (3, [250, 250, 250, 250, 200]), (5_000, [1] * 1_200)]
)
def test_many_task_managers_are_told_page_by_page(slots, pages):
    registered = {}
    for number in range(1_200):
        report = SimpleNamespace(host="h", pid=1, data_port=2, details={}, slots=())
        registered[f"t{number:04}"] = TaskManager(report, 0, counted=slots)
    told, sizes, more = [], [], True
    while more:
        page, more = page_of(registered, told[-1] if told else "")
        told += page
        sizes.append(len(page))
    assert (told, sizes) == (sorted(registered), pages)
    assert page_of(registered, None) == ([], False)


def test_the_totals_alone():
    c = Cluster()
    c.register("t1", 2)
    c.register("t2", 1)
    overview, _ = c.ask(RequestClusterOverview(after=None))
    assert (overview.taskmanagers, overview.count, overview.slots_total, overview.more) == ([], 2, 3, False)
    overview, _ = c.ask(RequestClusterOverview(after="t1"))
    assert ([m.id for m in overview.taskmanagers], overview.count) == (["t2"], 2)


def test_the_totals_are_those_of_the_reports():
    """Whatever comes in whichever order, the running totals equal a recount."""
    rng = random.Random(7)
    c = Cluster()
    for step in range(600):
        manager = f"t{rng.randrange(6)}"
        match rng.randrange(5):
            case 0:
                c.register(manager, rng.randrange(1, 4), pid=rng.randrange(3))
            case 1 if manager in c.slots:
                slots = c.slots[manager]
                slots[rng.randrange(len(slots))] = SlotStatus(index=0, state="free")
                c.slots[manager] = [
                    SlotStatus(index=i, state=s.state, job_id=s.job_id, allocation_id=s.allocation_id)
                    for i, s in enumerate(slots)
                ]
                c.register(manager)
            case 2:
                effects = c.declare(f"j{rng.randrange(4)}", rng.randrange(5))[1]
                for effect in effects:
                    if isinstance(effect, SendAllocate) and effect.taskmanager_id in c.slots:
                        if rng.random() < 0.7:
                            c.take_one(effect)
                        else:
                            c.step(AllocateAnswered(effect.message.allocation_id, Refused(reason="no")))
            case 3:
                c.ask(DeregisterTaskManager(taskmanager_id=manager))
            case _:
                c.later(500)
        registry = c.core.registry
        slots = [slot for m in registry.taskmanagers.values() for slot in m.slots()]
        assert registry.total == len(slots), step
        assert registry.free == sum(slot.state == "free" for slot in slots), step
        for job in ("j0", "j1", "j2", "j3"):
            assert registry.of_job(job) == sum(slot.job_id == job for slot in slots), step


def test_a_large_job_gets_every_slot_once():
    c = Cluster()
    for i in range(200):
        c.register(f"t{i:04}", 4)
    effects = c.declare("big", 800)[1]
    assert len(effects) == 800
    assert len({(e.taskmanager_id, e.message.slot_index) for e in effects}) == 800
