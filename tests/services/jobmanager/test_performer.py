"""What a master may still do that was replaced and does not know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
import structlog

from penstock.bus import MemoryBus, Subjects
from penstock.bus.envelope import serve_typed
from penstock.jobgraph.graph import encode_job_graph
from penstock.messages import cluster as msg
from penstock.messages import layout
from penstock.messages import slot as slot_msg
from penstock.messages.slot import StateHandle
from penstock.messages.states import JobStatus
from penstock.plan.compiled import PLAN_NAME, decode_plan
from penstock.snapshots.manifest import CheckpointManifest, encode_manifest
from penstock.store import MemoryStore, job_log, open_store
from penstock_services.common.clock import SystemClock
from penstock_services.common.tracing import NoTracer
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.kept_exceptions import kept_exceptions
from penstock_services.jobmanager.performer import Performer
from penstock_services.jobmanager.restoring import Loading
from penstock_services.jobmanager.stages import Inherited
from penstock_services.jobmanager.traces import JobSpans
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster

KEY = "jobs/j/checkpoints/3/v-0-1"


ACCEPTED = msg.JobAccepted(job_id="j", name="j", timestamp_ms=1, job_graph_key="", spec_key="")


async def leading(
    store, leads: Callable[[], bool] = lambda: True, accepted: msg.JobAccepted = ACCEPTED
) -> Performer:
    await job_log(store, "j").begin(accepted)
    log = job_log(store, "j")
    await log.lead("old", 1)
    performer = Performer(
        job_id="j",
        epoch=log.epoch,
        transport=MemoryBus().transport(),
        subjects=Subjects("test"),
        store=store,
        log=log,
        clock=SystemClock(),
        logger=structlog.get_logger(),
        on_stop=lambda *_: None,
        leads=leads,
        tracer=NoTracer(),
        spans=JobSpans("orders"),
    )
    performer.may_act.set()
    return performer


@pytest.mark.parametrize(
    ("directory", "says"),
    [
        ("savepoints", None),
        ("{tmp}/elsewhere", None),
        ("{tmp}/file/below", "Not a directory"),
        ("file://{tmp}/file/below", "Not a directory"),
        ("/proc/nothing", "No such file or directory"),
        ("nonsense://bucket/x", "cannot open the object store"),
    ],
)
async def test_a_place_for_savepoints_is_tried(tmp_path, directory, says):
    (tmp_path / "file").write_text("no folder")
    store = open_store(f"file://{tmp_path}/store")
    performer = await leading(store)
    directory = directory.replace("{tmp}", str(tmp_path))
    probed = await asyncio.ensure_future(performer.perform(fx.ProbeSavepoint("t", directory)))
    assert probed.trigger_id == "t"
    if says is None:
        assert probed.problem is None
        assert not list(tmp_path.rglob("*probe*")), "nothing stays"
    else:
        assert says in probed.problem
        assert directory in probed.problem
        assert "\n" not in probed.problem, "one sentence, that a refusal can hold"
        assert "object store in /" not in probed.problem


@pytest.mark.parametrize("told", [False, True])
def test_effects_wait_while_the_lease_has_run_out_and_no_longer(virtual_time, told):
    """A renewal may come through late, with nobody told that the lease had run out."""

    async def main():
        leads = False
        store = MemoryStore()
        performer = await leading(store, lambda: leads)
        await store.put("mine", b"x")
        deleting = asyncio.ensure_future(performer.perform(fx.DeleteObjects(frozenset({"mine"}))))
        await asyncio.wait([deleting], timeout=0.12)
        assert "mine" in store.objects
        if told:
            performer.may_act.clear()
        leads = True
        await asyncio.wait([deleting], timeout=0.12)
        assert deleting.done() == (not told)
        performer.may_act.set()
        assert await deleting is None
        assert "mine" not in store.objects

    virtual_time(main())


@pytest.mark.parametrize(("seconds", "lost"), [(20.0, False), (40.0, True)])
def test_a_slot_whose_process_takes_long_is_waited_for(virtual_time, seconds, lost):
    """Its task manager answers when the process is there, and repeats add nothing."""

    async def main():
        performer = await leading(MemoryStore())
        loop = asyncio.get_running_loop()
        ready = loop.time() + seconds

        async def deploy(message: msg.DeploySlot) -> msg.Ack:
            await asyncio.sleep(max(0.0, ready - loop.time()))
            return msg.Ack()

        message = msg.DeploySlot(command_id="c", allocation_id="a")
        manager = performer._transport
        await serve_typed(manager, performer._subjects.to_taskmanager("t", message), type(message), deploy)
        event = await performer.perform(fx.Command("t", message))
        assert isinstance(event, fx.CommandLost if lost else fx.CommandDone)
        if lost:
            assert "no answer within" in event.reason

    virtual_time(main())


async def test_a_replaced_master_deletes_nothing():
    """Its successor's task has written the object and told both of them."""
    store = MemoryStore()
    performer = await leading(store)
    await store.put("mine", b"x")
    deleted = await asyncio.ensure_future(performer.perform(fx.DeleteObjects(frozenset({"mine"}))))
    assert deleted is None
    assert "mine" not in store.objects

    await job_log(store, "j").lead("new", 2)
    await store.put(KEY, b"x")
    told = await asyncio.ensure_future(performer.perform(fx.DeleteObjects(frozenset({KEY}))))
    assert isinstance(told, fx.Deposed)
    assert KEY in store.objects


async def test_a_checkpoint_whose_manifest_was_changed_is_passed_over_for_the_one_before():
    store = MemoryStore()
    performer = await leading(store)
    completed = []
    for n in (1, 2):
        manifest = CheckpointManifest(
            job_id="j", job_name="j", checkpoint_id=n, kind="checkpoint", timestamp_ms=1, job_attempt=1, epoch=1,
            vertices=(),
        )  # fmt: skip
        await store.put(f"c/{n}/manifest", encode_manifest(manifest))
        completed.append((n, f"c/{n}/manifest", "checkpoint"))
    await store.put("c/2/manifest", (await store.get("c/2/manifest")).replace(b'"epoch":1', b'"epoch":2'))
    loading = Loading(Inherited(job_attempt=1, highest_checkpoint_id=2, completed=tuple(completed)), {})
    said = []
    for key in loading.keys:
        event = await asyncio.ensure_future(performer.perform(fx.LoadManifest(key)))
        said.append(event)
        loading.loaded(key, event.manifest if isinstance(event, fx.ManifestLoaded) else None)
    assert [type(event) for event in said] == [fx.ManifestLoaded, fx.ManifestUnreadable]
    assert "damaged" in said[1].error["message"]
    assert said[1].error["where"] == "c/2/manifest"
    assert not loading.unreadable
    assert [found.checkpoint_id for found in loading.found] == [1]


async def test_a_savepoint_holds_the_plan_of_its_job():
    """With the uids that its state has, and without what the job's own start was given."""
    store = MemoryStore()
    accepted = msg.JobAccepted(job_id="j", name="j", timestamp_ms=1, job_graph_key="graph", spec_key="")
    graph = pipeline(**{"execution.state-recovery.path": "before", "parallelism.default": "2"})
    await store.put("graph", encode_job_graph(msgspec.structs.replace(graph, matched_to="before")))
    performer = await leading(store, accepted=accepted)
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=1, kind="savepoint", timestamp_ms=1, job_attempt=1, epoch=1,
        vertices=(),
    )  # fmt: skip
    said = await asyncio.ensure_future(performer.perform(fx.StoreManifest("own", manifest, "savepoint-1")))
    assert isinstance(said, fx.ManifestStored)
    stored = decode_plan(await store.get(f"savepoint-1/{PLAN_NAME}"), "here")
    assert stored == msgspec.structs.replace(graph, config={"parallelism.default": "2"})

    await store.delete(["graph"])
    said = await asyncio.ensure_future(performer.perform(fx.StoreManifest("own", manifest, "savepoint-2")))
    assert isinstance(said, fx.ManifestNotStored)
    assert "savepoint-2/manifest" not in store.objects


def test_an_acknowledgement_of_a_checkpoint_that_was_not_begun_here_deletes_nothing():
    cluster = Cluster(pipeline(), seed=4, config={"execution.checkpointing.interval": "0"})
    coordinator = cluster.core.coordinator
    ack = slot_msg.CheckpointAcknowledged(
        job_id="job",
        job_attempt=1,
        execution_id="e",
        vertex_id="v",
        subtask_index=0,
        checkpoint_id=coordinator.next_id,
        handle=StateHandle(vertex_id="v", subtask_index=0, checkpoint_id=coordinator.next_id, key=KEY),
    )
    assert coordinator.acknowledge(ack, 0)[1] == []


async def test_what_is_said_is_in_the_log_at_once_also_while_nothing_may_be_done():
    performer = await leading(MemoryStore())
    performer.may_act.clear()
    with structlog.testing.capture_logs() as lines:
        assert performer.perform(fx.Say("warning", "job_restarting", {"error": "boom"})) is None
    assert lines == [{"log_level": "warning", "event": "job_restarting", "job_id": "j", "error": "boom"}]


async def test_the_newest_exceptions_are_kept_below_the_masters_epoch():
    store = MemoryStore()
    performer = await leading(store)
    histories = [tuple({"timestamp_ms": n} for n in range(i, 0, -1)) for i in range(1, 4)]
    await asyncio.gather(*(performer.perform(fx.KeepExceptions(entries)) for entries in histories))
    assert await kept_exceptions(store, "j") == list(histories[-1])
    await store.put(layout.exceptions_key("j", 9), b'[{"timestamp_ms": 4}]')
    await store.put(layout.exceptions_key("j", 10), b'[{"timestamp_ms": 5}]')
    assert await kept_exceptions(store, "j") == [{"timestamp_ms": 5}], "of the newest master"
    await store.put(layout.exceptions_key("j", 10), b"damaged")
    assert await kept_exceptions(store, "j") == []


async def test_nothing_is_left_of_exceptions_once_the_archive_has_them():
    store = MemoryStore()
    performer = await leading(store)
    await performer.perform(fx.KeepExceptions(({"timestamp_ms": 1},)))
    details = msg.JobDetails(job_id="j", name="j", status=JobStatus.FAILED, attempt=1, epoch=2, start_ms=1)
    await performer.perform(fx.Archive(details))
    assert not await store.list(layout.exceptions_prefix("j"))
