"""Start and orderly stop of a service process.

A service's ``__main__`` is ``run_service("taskmanager", build)``. ``build(context)`` makes the service. Then
``start`` is called (its dict goes on the ready line of the log). The service runs until SIGTERM, SIGINT or a
failure that the supervisor could not mend. Then ``stop`` is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock import config as conf
from penstock import internal_tls, secrets
from penstock.bus.nats import NatsTransport
from penstock.bus.subjects import Subjects
from penstock.errors import PenstockError, SpecError
from penstock_services.common import configuration, logs
from penstock_services.common.actor import Supervisor
from penstock_services.common.clock import SystemClock
from penstock_services.common.presence import announce
from penstock_services.common.tracing import NoTracer, open_tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import structlog

    from penstock.ports import Clock, LeaseStore, Store, Transport
    from penstock_services.common.tracing import Tracer

#: A stop that takes longer is cut short, so that nothing hangs.
STOP_TIMEOUT_S = 15.0


class Service(Protocol):
    """The part of a service that ``serve`` drives."""

    async def start(self) -> Mapping[str, Any]:
        """Starts the service, which is ready when this returns. The mapping goes on the ready line of the
        log."""

    async def stop(self) -> None:
        """Ends the service in an orderly way; no new work is taken. Also called if ``start`` failed half-way."""


@dataclass
class ServiceContext:
    """The environment of a service. ``service_id``: unique among processes (role and 8 hexadecimal digits)."""

    role: str
    service_id: str
    config: Mapping[str, str]
    clock: Clock
    transport: Transport
    subjects: Subjects
    supervisor: Supervisor
    log: structlog.stdlib.BoundLogger
    tracer: Tracer = field(default_factory=NoTracer)
    #: Called with False when the broker's connection is lost, with True when it is back.
    connection_listeners: list[Callable[[bool], None]] = field(default_factory=list)
    _closing: list[Any] = field(default_factory=list)
    _store: asyncio.Task[Store] | None = None

    async def store(self) -> Store:
        """The cluster's object store, opened and probed once. After a failure the next call tries again.
        Raises SpecError if no store is configured, ObjectStoreError if it cannot be used."""
        task = self._store
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._store = asyncio.create_task(self._open_store())
        return await asyncio.shield(task)

    async def _open_store(self) -> Store:
        from penstock.store import open_store, probe_conditional_create

        url = conf.STORAGE_URL.read(self.config)
        if not url:
            raise SpecError(
                f"no object store is configured ({conf.STORAGE_URL.key})",
                expected="file:///folder or s3://bucket/prefix",
                remedy=f"-D {conf.STORAGE_URL.key}=file:///some/folder, the same for every service",
            )
        store = open_store(url, storage_options(self.config))
        await probe_conditional_create(store, f"object store {url}")
        return store

    def leases(self) -> LeaseStore:
        """The cluster's lease store, which connects at its first use."""
        from penstock.leases import open_leases

        store: LeaseStore = open_leases(conf.REDIS_URL.read(self.config), prefix=self.subjects.cluster)
        self._closing.append(store)
        return store

    async def close(self) -> None:
        """Ends all children of the supervisor, then closes the lease stores, the tracer and the transport."""
        await self.supervisor.close()
        for thing in (*self._closing, self.tracer):
            await thing.close()
        await self.transport.close()


def storage_options(config: Mapping[str, str]) -> dict[str, str]:
    """``storage.options.*`` without their prefix."""
    prefix = conf.STORAGE_OPTIONS_PREFIX
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def run_service(role: str, build: Callable[[ServiceContext], Service], argv: list[str] | None = None) -> int:
    """Runs a service until it is told to stop; returns the exit code of the process. A PenstockError is
    printed with its place and remedy, any other error with its traceback."""
    try:
        config = configuration.parse_arguments(role, sys.argv[1:] if argv is None else argv)
        secrets.announce(config)
        internal_tls.announce(config)
        service_id = config.get(f"{role}.resource-id") or f"{role}-{uuid.uuid4().hex[:8]}"
        log = logs.configure(role, service_id, traced=bool(conf.TRACE_REPORTERS.read(config)))
        # What is imported stays: a collection that walks over it holds up every request for some 25 ms.
        gc.collect()
        gc.freeze()
        return asyncio.run(_run(role, service_id, config, log, build))
    except PenstockError as err:
        sys.stderr.write(f"{role} cannot run\n{err}\n")
        return 1
    except KeyboardInterrupt:
        return 130


async def _run(
    role: str,
    service_id: str,
    config: Mapping[str, str],
    log: structlog.stdlib.BoundLogger,
    build: Callable[[ServiceContext], Service],
) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    subjects = Subjects(conf.CLUSTER_ID.read(config))
    tracer = open_tracer(config, role, service_id)
    stop_wanted = asyncio.create_task(stopping.wait())
    listeners: list[Callable[[bool], None]] = []

    def connection_changed(connected: bool) -> None:
        for listener in listeners:
            listener(connected)

    connecting = asyncio.create_task(
        NatsTransport.connect(
            conf.NATS_URL.read(config),
            name=f"{subjects.cluster}-{service_id}",
            role=role,
            deadline_s=conf.NATS_CONNECT_TIMEOUT_MS.read(config) / 1000,
            on_connection=connection_changed,
            config=config,
        )
    )
    await asyncio.wait([connecting, stop_wanted], return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done():
        connecting.cancel()
        return 0
    clock = SystemClock()
    context = ServiceContext(
        role=role,
        service_id=service_id,
        config=config,
        clock=clock,
        transport=connecting.result(),
        subjects=subjects,
        supervisor=Supervisor(role, clock),
        log=log,
        tracer=tracer,
        connection_listeners=listeners,
    )
    try:
        return await serve(context, build, stop_wanted)
    finally:
        stop_wanted.cancel()


async def serve(
    context: ServiceContext, build: Callable[[ServiceContext], Service], stop_wanted: asyncio.Future[Any]
) -> int:
    """Runs a service in a given context until ``stop_wanted`` is done. Raises the error of ``start`` or of
    the supervisor."""
    service = build(context)
    started = asyncio.ensure_future(service.start())
    failed = asyncio.create_task(context.supervisor.failed())
    error: BaseException | None = None
    try:
        await asyncio.wait([started, failed, stop_wanted], return_when=asyncio.FIRST_COMPLETED)
        if started.done() and not started.cancelled() and (error := started.exception()) is None:
            await announce(context.transport, context.subjects, context.role, context.service_id)
            context.log.info("service_ready", pid=os.getpid(), **started.result())
            await asyncio.wait([failed, stop_wanted], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            error = failed.result()
    finally:
        if not started.done():
            started.cancel()
        context.log.info("service_stopping", reason=str(error) if error else "told to")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await _stop(service, context)
        failed.cancel()
    if error is not None:
        raise error
    context.log.info("service_stopped")
    return 0


async def _stop(service: Service, context: ServiceContext) -> None:
    try:
        await service.stop()
    finally:
        await context.close()
