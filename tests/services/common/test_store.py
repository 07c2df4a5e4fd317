"""A service's object store."""

from typing import Any

import pytest
import structlog

import penstock.store
from penstock import config as conf
from penstock.bus import MemoryBus, Subjects
from penstock.errors import ObjectStoreError
from penstock_services.common.actor import Supervisor
from penstock_services.common.clock import SystemClock
from penstock_services.common.main import ServiceContext


async def test_a_probe_that_failed_is_made_again(monkeypatch):
    """A store that erred for a moment, when it was first used, is not given up for ever."""
    probes: list[str] = []

    async def probe(store: Any, name: str) -> None:
        probes.append(name)
        if len(probes) == 1:
            raise ObjectStoreError("the answer was cut off")

    monkeypatch.setattr(penstock.store, "probe_conditional_create", probe)
    clock = SystemClock()
    context = ServiceContext(
        role="taskmanager",
        service_id="t",
        config={conf.STORAGE_URL.key: "memory:///once"},
        clock=clock,
        transport=MemoryBus().transport(),
        subjects=Subjects("test"),
        supervisor=Supervisor("t", clock),
        log=structlog.get_logger(),
    )
    with pytest.raises(ObjectStoreError):
        await context.store()
    store = await context.store()
    assert await context.store() is store
    assert len(probes) == 2
