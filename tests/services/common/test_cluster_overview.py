"""A cluster that is told page by page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.bus import MemoryBus, Subjects, encode, serve_typed
from penstock.errors import BrokerError
from penstock.messages.resource_manager import (
    ClusterOverview,
    RegisterTaskManager,
    RequestClusterOverview,
    SlotStatus,
    ToResourceManager,
)
from penstock_services.common.cluster_overview import cluster_overview, cluster_totals
from penstock_services.common.core import Answer, Asked
from penstock_services.resourcemanager.core import ResourceManagerCore, Settings

#: As nats-server is configured if nobody says otherwise.
MAX_PAYLOAD = 1 << 20


def core_of(managers: int, epoch: int = 3) -> ResourceManagerCore:
    core = ResourceManagerCore("rm", epoch, Settings(), 0)
    details = {"rss_bytes": 123_456_789, "cpu_seconds": 1234.5, "cpu_share": 0.4321, "silent_ms": 123}
    slots = tuple(
        SlotStatus(
            index=i, state="active", job_id="j" * 32, allocation_id=f"a{i}", pid=10_000 + i, details=details
        )
        for i in range(4)
    )
    for number in range(managers):
        report = RegisterTaskManager(
            taskmanager_id=f"taskmanager-{number:04}", host="a-host-with-a-name.example.net", pid=number,
            data_host="127.0.0.1", data_port=1, slots=slots, details={"folder": "/var/lib/penstock", **details},
        )  # fmt: skip
        list(core.step(Asked(number, report), 0))
    return core


def asked(cores: list[ResourceManagerCore], ask: Any) -> ClusterOverview:
    """What ``ask`` makes of the answers; each message goes to the next core, the last one answers all others."""

    async def main() -> ClusterOverview:
        bus, subjects = MemoryBus(), Subjects("c")
        leading = list(cores)

        async def serve(message: RequestClusterOverview) -> ClusterOverview:
            core = leading.pop(0) if len(leading) > 1 else leading[0]
            [answer] = [e for e in core.step(Asked(1, message), 0) if isinstance(e, Answer)]
            assert len(encode(answer.reply)) < MAX_PAYLOAD / 2
            return answer.reply

        await serve_typed(bus.transport(), subjects.resourcemanager_all, ToResourceManager, serve)
        found: ClusterOverview = await ask(bus.transport(), subjects, retry=False)
        return found

    return asyncio.run(main())


def test_a_thousand_task_managers_come_in_messages_that_nats_takes() -> None:
    found = asked([core_of(1_000)], cluster_overview)
    assert [m.id for m in found.taskmanagers] == [f"taskmanager-{n:04}" for n in range(1_000)]
    assert (found.count, found.slots_total, found.slots_free) == (1_000, 4_000, 0)
    assert all(len(m.slots) == 4 for m in found.taskmanagers)


def test_the_totals_have_no_task_managers() -> None:
    found = asked([core_of(300)], cluster_totals)
    assert (found.taskmanagers, found.count, found.slots_total) == ([], 300, 1_200)


def test_pages_of_two_leaders_are_not_put_together() -> None:
    with pytest.raises(BrokerError, match="another resource manager"):
        asked([core_of(300), core_of(300, epoch=4)], cluster_overview)


def test_a_resource_manager_before_pages_counts_its_task_managers() -> None:
    """It knows neither ``after`` nor ``count``, and sends all task managers."""

    class Old:
        def step(self, event: Any, now_ms: int) -> list[Any]:
            [answer] = [
                e for e in core_of(3).step(Asked(1, RequestClusterOverview()), 0) if isinstance(e, Answer)
            ]
            return [replace(answer, reply=msgspec.structs.replace(answer.reply, count=0))]

    for ask in (cluster_totals, cluster_overview):
        assert asked([Old()], ask).count == 3  # type: ignore[list-item]
