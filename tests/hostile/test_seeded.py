"""Seconds of what `make hostile` does for an hour: seeded messages to the cores of the services, whole and damaged, and
seeded requests to REST and to the dispatcher on the bus."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any, get_args

import pytest

from penstock.bus import decode
from penstock.errors import SpecError
from penstock.messages.cluster import Refused
from penstock.messages.job_master import ToJobMaster
from penstock.messages.resource_manager import RequestClusterOverview, ToResourceManager
from penstock.messages.task_manager import (
    AllocateSlot,
    DeploySlot,
    FreeSlot,
    SlotCommand,
    ToTaskManager,
    ToTaskManagers,
)
from penstock_services.common.core import Answer, Asked, Tick
from penstock_services.resourcemanager.core import ResourceManagerCore
from penstock_services.resourcemanager.core import Settings as ResourceSettings
from penstock_services.taskmanager.slot_table import SlotTable
from penstock_services.taskmanager.slots import Settings as SlotSettings
from tests.hostile.subjects import Messages
from tests.hostile.values import Values, encoded, mutated
from tests.hostile.wire import STREAMS, filled
from tests.services.dispatcher.conftest import front, routes  # noqa: F401  (a fixture)
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster

SEEDS = range(3)
#: Answered by the service around the slot table.
IN_THE_TABLE = (AllocateSlot, DeploySlot, FreeSlot, SlotCommand)


def decoded(message: Any, union: Any) -> Any:
    return decode(encoded(message), union)


@pytest.mark.parametrize("union", [ToJobMaster, ToResourceManager, ToTaskManager, ToTaskManagers])
def test_damaged_messages_are_refused_by_name_or_read(union: Any) -> None:
    rng = random.Random(1)
    values = Values(rng)
    outcomes = set()
    for _ in range(300):
        data = mutated(rng, encoded(values.message(union)))
        try:
            outcomes.add(isinstance(decode(data, union), get_args(union)))
        except SpecError as err:
            outcomes.add(err.message.partition(":")[0])
    assert outcomes >= {"malformed message"}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_resource_manager_answers_every_message(seed: int) -> None:
    core = ResourceManagerCore("rm", 5, ResourceSettings(settle_ms=0), 0)
    values = Values(random.Random(seed), {"epoch": (5,)})
    for token in range(300):
        message = decoded(values.message(ToResourceManager), ToResourceManager)
        effects = list(core.step(Asked(token, message), token * 100))
        assert token in [e.token for e in effects if isinstance(e, Answer)], message
        list(core.step(Tick(), token * 100))
    for now in range(30_000, 60_000, 500):
        # Somebody is heard: a leader that hears nobody takes itself for cut off.
        list(core.step(Asked(now, RequestClusterOverview()), now))
        list(core.step(Tick(), now))
    assert core.overview().slots_total == 0, "who was never heard of again is still listed"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slot_table_gives_back_every_slot(seed: int) -> None:
    table = SlotTable(3, SlotSettings())
    known = {"allocation_id": ("a1", "a2"), "job_id": ("j",), "slot_index": (0, 1, 2), "epoch": (1, 2)}
    values = Values(random.Random(seed), known)
    for token in range(150):
        cls = random.Random(seed * 1_000 + token).choice(IN_THE_TABLE)
        message = decoded(values.message(cls), cls)
        list(table.step(Asked(token, message), token))
        list(table.step(Tick(), token))
    for now in (10_000_000, 20_000_000):
        list(table.step(Tick(), now))
    assert {slot.state.value for slot in table.slots} <= {"free", "ending"}
    assert len(table.jobs) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_a_job_master_survives_every_message(seed: int) -> None:
    """Its state may be that of another job afterwards, as the messages lie; the master runs, and can be cancelled."""
    cluster = Cluster(pipeline(), seed, unbounded=True)
    cluster.run(lambda: len(cluster.tasks) == 6)
    known: dict[str, Any] = {
        "job_id": ("job",),
        "epoch": (cluster.epoch,),
        "allocation_id": tuple(cluster.allocations),
        "taskmanager_id": ("tm0", "tm1"),
        "execution_id": tuple(t.descriptor.execution_id for t in cluster.tasks.values()),
        "vertex_id": ("enumerate", "read", "sum", "sink"),
        "subtask_index": (0, 1),
        "attempt": (1, 2),
        "job_attempt": (1, 2),
        "checkpoint_id": (1, 2),
    }
    values = Values(random.Random(seed), known)
    tokens = itertools.count(1_000_000)
    for _ in range(60):
        message = decoded(values.message(ToJobMaster), ToJobMaster)
        for effect in cluster.core.step(Asked(next(tokens), message), cluster.now_ms):
            if cluster.stopped is None:
                cluster.perform(effect)
        cluster.now_ms += 10


@pytest.mark.parametrize("seed", SEEDS)
async def test_rest_answers_no_5xx(front: Any, seed: int) -> None:  # noqa: F811
    job = await front.submit()
    # Without somebody who answers, each request that needs them waits for its time limit.
    await front.master(job, lambda message: Refused(reason="no"))
    await front.task_manager()
    rng = random.Random(seed)
    values = Values(rng)
    endpoints = [(method, path) for method, path in routes() if path not in STREAMS]
    for method, path in filled(rng, endpoints, {"job": [job], "manager": ["tm1"]}):
        body = encoded(values.json_value()) if method != "GET" else b""
        body = mutated(rng, body) if body and rng.random() < 0.5 else body
        reply = await front.http.request(method, path, content=body)
        assert reply.status_code < 500 or reply.status_code == 503, (
            f"{method} {path[:80]}: {reply.text[:500]}"
        )


async def test_the_dispatcher_answers_every_message_on_the_bus(front: Any) -> None:  # noqa: F811
    job = await front.submit()
    await front.master(job, lambda message: Refused(reason="no"))
    messages = Messages(random.Random(3), front.subjects, [job], ["tm1"])
    transport, kinds = front.bus.transport(), set()
    for _ in range(150):
        made = messages.next()
        # A spec that can be read starts a planner; test_hostile.py of the dispatcher has some.
        if made.answered and ".jobs." in made.subject and not made.subject.endswith(".submit"):
            reply = json.loads(await transport.request(made.subject, made.data, 60))
            kinds.add(reply.get("error", {}).get("type"))
            assert reply.get("error", {}).get("type") != "InternalError", (made, reply)
    assert "SpecError" in kinds
