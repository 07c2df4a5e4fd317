"""The slot table on its own: who may command a slot, and what becomes of it."""

import itertools

import pytest

from penstock.errors import ExternalError
from penstock.jobgraph import JobGraph
from penstock.messages.cluster import Ack, Refused
from penstock.messages.job_master import SlotDeployment, SlotOffer, TaskReport
from penstock.messages.slot import (
    CheckpointComplete,
    Deploy,
    MasterChanged,
    StorageSettings,
    TaskDescriptor,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.messages.states import ExecutionState
from penstock.messages.task_manager import AllocateSlot, DeploySlot, FreeSlot, SlotCommand
from penstock_services.common.core import Answer, Asked, EffectFailed, Tick
from penstock_services.taskmanager.slot_table import (
    END_GRACE_MS,
    REPLACE_GRACE_MS,
    Deliver,
    Delivered,
    End,
    Ended,
    Fork,
    Forked,
    JobEnded,
    MasterHeard,
    NewMaster,
    Offer,
    OfferAgain,
    OfferAnswered,
    ReportLost,
    ReportSlots,
    SlotTable,
)
from penstock_services.taskmanager.slots import SLOT_TRANSITIONS, Admission, Settings, SlotState


def deployment(attempt=1, epoch=2, allocation="a1", job="j"):
    return Deploy(
        job_id=job,
        job_attempt=attempt,
        epoch=epoch,
        allocation_id=allocation,
        job_graph=JobGraph(name="g", vertices=(), edges=()),
        tasks=(TaskDescriptor(execution_id="e", vertex_id="v", subtask_index=0, attempt=attempt),),
        locations={},
        slots={},
        secret="00",
        storage=StorageSettings(url="memory:///"),
    )


class Table:
    def __init__(self, slots=2, **settings):
        self.now = 1000
        self.table = SlotTable(slots, Settings(**settings))
        self.tokens = itertools.count(1)

    def step(self, event):
        return [e for e in self.table.step(event, self.now) if e != ReportSlots()]

    def ask(self, message):
        """(the answer or None when it comes later, other effects, token)"""
        token = next(self.tokens)
        effects = self.step(Asked(token, message))
        answers = [e.reply for e in effects if isinstance(e, Answer) and e.token == token]
        assert len(answers) <= 1
        rest = [e for e in effects if not (isinstance(e, Answer) and e.token == token)]
        return (answers[0] if answers else None), rest, token

    def allocate(self, allocation="a1", index=0, epoch=1, job="j"):
        return self.ask(
            AllocateSlot(command_id="c", epoch=epoch, slot_index=index, job_id=job, allocation_id=allocation)
        )

    def deploy(self, attempt=1, epoch=2, allocation="a1", job="j"):
        deploy = deployment(attempt, epoch, allocation, job)
        return self.ask(DeploySlot(command_id="c", allocation_id=allocation, deploy=deploy))

    def free(self, allocation="a1", epoch=2, job="j"):
        return self.ask(FreeSlot(command_id="c", job_id=job, allocation_id=allocation, epoch=epoch))

    def command(self, command, allocation="a1"):
        return self.ask(SlotCommand(command_id="c", allocation_id=allocation, command=command))

    def running(self, attempt=1):
        """Slot 0 with a running process; its number."""
        self.allocate()
        _, [fork], token = self.deploy(attempt)
        assert self.step(Forked(fork.process, 4711)) == [Answer(token, Ack())]
        return fork.process

    @property
    def states(self):
        return [slot.state.value for slot in self.table.slots]


def test_allocation_is_offered_to_the_master():
    t = Table()
    answer, effects, _ = t.allocate()
    assert answer == Ack()
    assert effects == [Offer("j", (SlotOffer(allocation_id="a1", slot_index=0),))]
    assert t.states == ["allocated", "free"]
    assert t.allocate()[:2] == (Ack(), [])  # a repeat
    answer, effects, _ = t.allocate("a2")
    assert "has allocation a1 of job j" in answer.reason
    assert t.allocate("a3", index=9)[0] == Refused(reason="there is no slot 9")


def test_an_old_resource_manager_is_refused():
    t = Table()
    t.allocate(epoch=5)
    assert t.allocate("a2", 1, epoch=4)[0].fenced
    assert t.states == ["allocated", "free"]


def test_accepted_or_given_up():
    t = Table(slot_timeout_ms=100)
    _, [first], _ = t.allocate("a1", 0)
    _, [second], _ = t.allocate("a2", 1)
    assert t.step(OfferAnswered(first, frozenset({"a1"}))) == []
    t.now += 101
    t.step(Tick())
    assert t.states == ["allocated", "free"]
    # An answer that comes late finds nothing.
    assert t.step(OfferAnswered(second, frozenset({"a2"}))) == []


def test_not_accepted_is_free_again():
    t = Table()
    _, [offer], _ = t.allocate()
    t.step(OfferAnswered(offer, frozenset()))
    assert t.states == ["free", "free"]
    assert t.table.jobs == {}


def test_deploy_forks_and_is_answered_when_the_process_is_there():
    t = Table()
    t.allocate()
    answer, [fork], token = t.deploy()
    assert answer is None
    assert isinstance(fork, Fork)
    assert fork.slot_index == 0
    assert t.states[0] == "forking"
    _, none, repeated = t.deploy()  # a repeat meanwhile waits too
    assert none == []
    assert t.step(Forked(fork.process, 4711)) == [Answer(token, Ack()), Answer(repeated, Ack())]
    assert t.states[0] == "active"
    assert t.table.report()[0].pid == 4711
    assert t.deploy()[:2] == (Ack(), [])


@pytest.mark.parametrize(
    ("what", "fenced"),
    [({"epoch": 1}, True), ({"attempt": 1, "epoch": 3}, False), ({"allocation": "x"}, False)],
)
def test_deploy_refused(what, fenced):
    t = Table()
    t.running(attempt=2)
    answer, effects, _ = t.deploy(**{"attempt": 2, **what})
    assert isinstance(answer, Refused)
    assert answer.fenced is fenced
    assert effects == []


def test_the_next_attempt_replaces_the_process():
    t = Table()
    first = t.running()
    answer, effects, token = t.deploy(attempt=2)
    assert (answer, effects) == (None, [End(first, REPLACE_GRACE_MS)])
    [fork] = t.step(Ended(first, "exit code 0"))
    assert isinstance(fork, Fork)
    assert fork.deploy.job_attempt == 2
    assert fork.process != first
    assert t.step(Forked(fork.process, 4712)) == [Answer(token, Ack())]
    assert t.step(Ended(first, "again")) == []  # the old one's end is not the new one's


def test_superseded_while_forking():
    t = Table()
    t.allocate()
    _, [fork], old = t.deploy()
    _, effects, new = t.deploy(attempt=2)
    assert effects == [Answer(old, Refused(reason="a newer attempt is being deployed"))]
    assert t.step(Forked(fork.process, 1)) == [End(fork.process, REPLACE_GRACE_MS)]
    [again] = t.step(Ended(fork.process, "ended"))
    assert again.deploy.job_attempt == 2
    assert t.step(Forked(again.process, 2)) == [Answer(new, Ack())]


def test_free():
    t = Table()
    t.allocate()
    assert t.free()[0] == Ack()
    assert t.states[0] == "free"
    assert t.free()[0] == Ack()  # a repeat
    process = t.running()
    assert t.free(epoch=1)[0].fenced
    assert t.free()[:2] == (Ack(), [End(process, END_GRACE_MS)])
    assert t.states[0] == "ending"
    assert t.table.report()[0].state == "active"
    assert t.step(Ended(process, "exit code 0")) == []
    assert t.states[0] == "free"


def test_freed_while_forking():
    t = Table()
    t.allocate()
    _, [fork], token = t.deploy()
    answer, effects, _ = t.free()
    assert answer == Ack()
    assert [e.token for e in effects] == [token]
    assert t.step(Forked(fork.process, 1)) == [End(fork.process, REPLACE_GRACE_MS)]
    t.step(Ended(fork.process, "ended"))
    assert t.states[0] == "free"


def test_freed_while_forking_and_the_fork_fails():
    t = Table()
    t.allocate()
    _, [fork], _ = t.deploy()
    t.free()
    t.step(EffectFailed(fork, ExternalError("no memory")))
    assert t.states[0] == "free"


def test_a_deploy_that_meets_a_slot_being_freed_is_answered():
    t = Table()
    process = t.running()
    t.free()
    answer, effects, token = t.deploy()
    assert (answer, effects) == (None, [])
    [refused] = t.step(Ended(process, "ended"))
    assert refused.token == token
    assert isinstance(refused.reply, Refused)


def test_death_is_reported_with_its_reason():
    t = Table()
    process = t.running()
    assert t.step(Ended(process, "signal SIGKILL")) == [ReportLost(process, "j", "a1", "signal SIGKILL")]
    assert t.states[0] == "free"
    answer, _, _ = t.deploy(attempt=2)
    assert "no slot here has allocation a1" in answer.reason


def test_a_failed_fork_is_raised_at_the_master_and_the_slot_stays():
    t = Table()
    t.allocate()
    _, [fork], token = t.deploy()
    error = ExternalError("cannot fork")
    assert t.step(EffectFailed(fork, error)) == [Answer(token, error)]
    assert t.states[0] == "allocated"
    assert isinstance(t.deploy()[1][0], Fork)  # may be tried again


def test_commands_reach_the_process_and_old_masters_do_not():
    t = Table()
    process = t.running()
    complete = CheckpointComplete(epoch=2, checkpoint_id=1)
    answer, effects, token = t.command(complete)
    assert (answer, effects) == (None, [Deliver(token, process, complete)])
    assert t.step(Delivered(token)) == [Answer(token, Ack())]
    assert t.step(Delivered(token, "it is gone")) == [Answer(token, Refused(reason="it is gone"))]
    assert isinstance(t.command(MasterChanged(epoch=9))[1][0], Deliver)
    assert t.command(complete)[0].fenced
    assert t.deploy(attempt=3, epoch=2)[0].fenced
    assert t.free()[0].fenced
    unknown = t.command(complete, "x")[0]
    assert "no slot here" in unknown.reason
    assert unknown.no_slot, "whoever holds it in mind learns that it is gone"


def test_commands_without_a_process():
    t = Table()
    t.allocate()
    answer, effects, _ = t.command(CheckpointComplete(epoch=2, checkpoint_id=1))
    assert "no process runs" in answer.reason
    assert not answer.no_slot
    assert effects == []


def test_all_is_offered_again_now_and_then_and_after_the_bus_was_away():
    t = Table(offer_interval_ms=1000)
    t.running()
    t.allocate("a2", 1)
    task = TaskReport(execution_id="e", vertex_id="v", subtask_index=0, state=ExecutionState.DEPLOYING)
    runs = SlotDeployment(job_attempt=1, epoch=2, tasks=(task,))
    both = [
        Offer("j", (SlotOffer(allocation_id="a1", slot_index=0, deployed=runs),)),
        Offer("j", (SlotOffer(allocation_id="a2", slot_index=1),)),
    ]
    assert t.step(OfferAgain()) == both
    t.now += 1001
    assert t.step(Tick()) == both
    assert t.step(Tick()) == []


def test_a_new_master_hears_what_runs_and_the_old_one_is_refused():
    t = Table()
    process = t.running()
    t.table.reported(process, TaskStateChanged(
        job_id="j", job_attempt=1, execution_id="e", vertex_id="v", subtask_index=0,
        state=ExecutionState.RUNNING, timestamp_ms=1,
    ))  # fmt: skip
    t.command(TriggerCheckpoint(epoch=2, checkpoint_id=7, timestamp_ms=1, execution_ids=("e",)))
    t.command(CheckpointComplete(epoch=2, checkpoint_id=6))
    [offer] = t.step(NewMaster("j", 9))
    deployed = offer.slots[0].deployed
    assert [(r.execution_id, r.state) for r in deployed.tasks] == [("e", ExecutionState.RUNNING)]
    assert (deployed.job_attempt, deployed.confirmed_checkpoint_id, deployed.highest_checkpoint_id) == (
        1,
        6,
        7,
    )
    assert t.command(CheckpointComplete(epoch=2, checkpoint_id=7))[0].fenced
    assert t.step(NewMaster("j", 9)) == [], "it is being told already"
    assert t.step(NewMaster("j", 8)) == [], "an older one"
    t.now += t.table.settings.tell_again_ms
    assert t.step(NewMaster("j", 9)) == [offer]
    assert t.step(NewMaster("other", 9)) == []


def test_a_job_that_is_over_leaves_its_slots():
    t = Table()
    process = t.running()
    assert t.step(JobEnded("j", 1)) == [], "an older epoch says so"
    assert t.step(JobEnded("j", 2)) == [End(process, END_GRACE_MS)]


def test_a_running_slot_that_the_master_does_not_want_is_ended():
    t = Table()
    process = t.running()
    [offer] = t.step(OfferAgain())
    assert t.step(OfferAnswered(offer, frozenset())) == [End(process, END_GRACE_MS)]


def test_a_late_refusal_does_not_end_what_was_deployed_since():
    """The first offer met a master that held a dead slot; its answer comes behind the deployment."""
    t = Table()
    _, [offer], _ = t.allocate()
    t.deploy()
    assert t.step(OfferAnswered(offer, frozenset())) == []
    assert t.states[0] == "forking"


def test_without_a_master_for_long_all_ends():
    t = Table(master_timeout_ms=10_000, offer_interval_ms=10**9)
    process = t.running()
    t.now += 9_000
    t.step(MasterHeard("j"))
    t.now += 9_000
    assert t.step(Tick()) == []
    t.now += 2_000
    assert t.step(Tick()) == [End(process, END_GRACE_MS)]
    assert t.step(Tick()) == []
    assert t.step(Ended(process, "told to")) == []
    assert t.states[0] == "free"


def preface(**what):
    return {
        "job_id": "j",
        "job_attempt": 2,
        "epoch": 2,
        "source_allocation": "a9",
        "target_allocation": "a1",
        **what,
    }


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, Admission.PASS),
        ({"target_allocation": "a7"}, Admission.REFUSE),
        ({"job_id": "other"}, Admission.REFUSE),
        ({"job_attempt": 1}, Admission.REFUSE),
        ({"job_attempt": 3}, Admission.WAIT),
        ({"epoch": 1}, Admission.REFUSE),
    ],
)
def test_data_connections(what, expected):
    t = Table()
    t.running(attempt=2)
    assert t.table.admit(preface(**what))[0] is expected


def test_data_connections_wait_for_the_process():
    t = Table()
    t.allocate()
    assert t.table.admit(preface())[0] is Admission.WAIT
    _, [fork], _ = t.deploy(attempt=2)
    assert t.table.admit(preface())[0] is Admission.WAIT
    t.step(Forked(fork.process, 1))
    assert t.table.admit(preface())[0] is Admission.PASS
    t.deploy(attempt=3)
    assert t.table.admit(preface())[0] is Admission.REFUSE
    assert t.table.admit(preface(job_attempt=3))[0] is Admission.WAIT


def test_the_life_cycle_in_the_docstring_is_the_table():
    """Every state has a way to FREE, and every state is reached."""
    reached = {state for targets in SLOT_TRANSITIONS.values() for state in targets}
    assert reached == set(SlotState)
    for state in SlotState:
        seen, todo = set(), [state]
        while todo:
            now = todo.pop()
            if now not in seen:
                seen.add(now)
                todo.extend(SLOT_TRANSITIONS[now])
        assert SlotState.FREE in seen
