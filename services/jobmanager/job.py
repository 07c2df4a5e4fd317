"""One job at one job manager: it competes for the job's lease, and while it leads it runs the job's master.

A master that cannot renew its lease *pauses*: its decisions wait. If it gets the lease back, and the log
holds no newer epoch, it continues, so that an outage of the lease store costs nothing. Otherwise a new
master starts from the log.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import config as conf
from penstock.bus import publish, serve_typed
from penstock.errors import BrokerError, FencedError, ObjectStoreError, PenstockError
from penstock.jobgraph.graph import decode_job_graph
from penstock.messages.cluster import JobDetails
from penstock.messages.job_master import ToJobMaster
from penstock.messages.layout import archive_key, checkpoints_prefix
from penstock.messages.slot import StorageSettings
from penstock.messages.states import JobStatus
from penstock.messages.task_manager import JobOver
from penstock.store import job_log
from penstock_services.common.actor import Actor
from penstock_services.common.election import LeaderElection
from penstock_services.common.main import storage_options
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.checkpoint_history import Statistics, newest_statistics, statistics_among
from penstock_services.jobmanager.inheritance import (
    highest_listed,
    in_phase,
    read_logged_job,
    with_statistics,
)
from penstock_services.jobmanager.kept_exceptions import kept_exceptions
from penstock_services.jobmanager.master import JobMasterCore
from penstock_services.jobmanager.performer import Performer
from penstock_services.jobmanager.stages import Settings, Stage
from penstock_services.jobmanager.storing import archive
from penstock_services.jobmanager.traces import JobSpans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.messages.cluster import Terminal
    from penstock.ports import LeaseStore, Store, Subscription
    from penstock.store import DecisionLog
    from penstock_services.common.main import ServiceContext
    from penstock_services.jobmanager.inheritance import LoggedJob


class _RunningMaster:
    """A master at work, with its parts."""

    def __init__(self, log: DecisionLog, core: JobMasterCore, actor: Actor, performer: Performer) -> None:
        self.log = log
        self.core = core
        self.actor = actor
        self.performer = performer
        self.subscription: Subscription | None = None


class Job:
    """One job. ``on_over(job_id, ended)`` is called when the job is globally terminal, or (not ``ended``) if
    the log holds no such job."""

    def __init__(
        self,
        context: ServiceContext,
        leases: LeaseStore,
        store: Store,
        job_id: str,
        on_over: Callable[[str, bool], None],
    ) -> None:
        self._context = context
        self._store = store
        self.job_id = job_id
        self._on_over = on_over
        self._running: _RunningMaster | None = None
        self.election = LeaderElection(
            leases,
            f"job-{job_id}",
            context.service_id,
            conf.LEASE_TTL_MS.read(context.config),
            context.clock,
            self._gained,
            self._lost,
        )

    async def run(self) -> None:
        """Competes for the lease and leads the job, until it is cancelled."""
        try:
            await self.election.run()
        finally:
            await self._end_master()

    # -- leadership ----------------------------------------------------------------------

    async def _gained(self) -> None:
        if self._running is not None:
            if await self._still_ours(self._running):
                self._context.log.info("job_resumed", job_id=self.job_id, epoch=self._running.log.epoch)
                self._running.performer.may_act.set()
                return
            await self._end_master()
        log = job_log(self._store, self.job_id)
        await log.read()
        if not log.entries:
            self._context.log.warning("job_unknown", job_id=self.job_id)
            self._on_over(self.job_id, False)
            return
        if self._read_log(log).terminal is None:
            await log.lead(self._context.service_id, self._context.clock.now_ms())
        logged = self._read_log(log)
        if logged.terminal is not None:
            await self._tidy(log, logged, logged.terminal)
            self._on_over(self.job_id, True)
            return
        await self._start_master(log, logged)

    def _read_log(self, log: DecisionLog) -> LoggedJob:
        return read_logged_job(log.entries, conf.CHECKPOINT_RETAINED.read(self._context.config))

    async def _still_ours(self, running: _RunningMaster) -> bool:
        if running.subscription is None:
            return False  # the bus was disconnected at its start, so it has no subscription
        try:
            await running.log.read()
            running.log.check()
        except FencedError:
            return False
        return True

    async def _start_master(self, log: DecisionLog, logged: LoggedJob) -> None:
        context = self._context
        assert logged.accepted is not None
        whole = decode_job_graph(await self._store.get(logged.accepted.job_graph_key))
        graph, phase = in_phase(whole, logged)
        config = conf.job_defaults(context.config) | graph.config
        logged = read_logged_job(log.entries, conf.CHECKPOINT_RETAINED.read(config))
        inherited = replace(
            logged.inherited, exceptions=tuple(await kept_exceptions(self._store, self.job_id))
        )
        if inherited.job_attempt:
            listed = await self._store.list(checkpoints_prefix(self.job_id))
            keys = [key for key, _ in listed]
            highest = max(inherited.highest_checkpoint_id, highest_listed(self.job_id, keys))
            inherited = replace(inherited, highest_checkpoint_id=highest)
            inherited = replace(
                with_statistics(inherited, await self._statistics(keys)),
                statistics=statistics_among(self.job_id, keys),
            )
        performer = Performer(
            job_id=self.job_id,
            epoch=log.epoch,
            transport=context.transport,
            subjects=context.subjects,
            store=self._store,
            log=log,
            clock=context.clock,
            logger=context.log,
            leads=self.election.still_leading,
            on_stop=self._stopped,
            tracer=context.tracer,
            spans=JobSpans(whole.name),
        )
        settings = Settings(
            jobmanager_id=context.service_id,
            epoch=log.epoch,
            storage=StorageSettings(
                url=conf.STORAGE_URL.read(context.config), options=storage_options(context.config)
            ),
            config=config,
            secret=secrets.token_hex(32),
            heartbeat_interval_ms=conf.HEARTBEAT_INTERVAL_MS.read(context.config),
            heartbeat_timeout_ms=conf.HEARTBEAT_TIMEOUT_MS.read(context.config),
            phase=phase,
        )
        core = JobMasterCore(self.job_id, graph, settings, inherited, context.clock.now_ms())
        actor = Actor(f"job-{self.job_id}", core, performer.perform, context.clock)
        running = self._running = _RunningMaster(log, core, actor, performer)
        performer.may_act.set()
        context.supervisor.start(self._actor_name, lambda: self._run_master(running))
        await actor.tell(fx.Begin())
        running.subscription = await serve_typed(
            context.transport, context.subjects.job_all(self.job_id), ToJobMaster, self._serve
        )
        context.log.info(
            "leadership_acquired", job_id=self.job_id, name=graph.name, epoch=log.epoch,
            attempt=inherited.job_attempt or 1, phase=phase or "running",
        )  # fmt: skip

    async def _statistics(self, keys: Iterable[str]) -> list[Statistics]:
        """The statistics of the last checkpoints, as far as they can be read. They are only shown."""
        found = []
        for key in newest_statistics(self.job_id, keys):
            try:
                found.append(msgspec.json.decode(await self._store.get(key), type=Statistics))
            except (KeyError, ObjectStoreError, msgspec.DecodeError) as err:
                self._context.log.warning("statistics_not_read", job_id=self.job_id, key=key, error=str(err))
        return found

    @property
    def _actor_name(self) -> str:
        return f"master-{self.job_id}"

    async def _run_master(self, running: _RunningMaster) -> None:
        """Runs the master. After an error of its core its state cannot be trusted, so a new master starts
        from the log."""
        try:
            await running.actor.run()
        except Exception:
            self._context.log.exception("job_master_failed", job_id=self.job_id)
            if self._running is running:
                running.performer.may_act.clear()
                running.log.epoch = 0  # so that this master is never resumed
                self.election.resign()

    async def _end_master(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if running.subscription is not None:
            try:
                await running.subscription.unsubscribe()
            except BrokerError as err:
                self._context.log.warning("unsubscribe_failed", job_id=self.job_id, error=err.message)
        await self._context.supervisor.stop(self._actor_name)

    async def _lost(self, reason: str) -> None:
        if self._running is not None and self._running.core.stage is not Stage.GONE:
            self._context.log.warning("leadership_lost", job_id=self.job_id, reason=reason)
            self._running.performer.may_act.clear()

    def _stopped(self, status: JobStatus, reason: str) -> None:
        """The master has stopped, with this status."""
        if status.globally_terminal:
            self._context.log.info("job_ended", job_id=self.job_id, status=status.value)
            self._on_over(self.job_id, True)
            return
        if status is JobStatus.RUNNING:
            self._context.log.info("job_handed_over", job_id=self.job_id, reason=reason)
        else:
            self._context.log.warning("leadership_revoked", job_id=self.job_id, reason=reason)
        if self._running is not None:
            self._running.log.epoch = 0  # so that this master is never resumed
        self.election.resign()

    async def _tidy(self, log: DecisionLog, logged: LoggedJob, terminal: Terminal) -> None:
        """Cleans up for a master that ended after Terminal, and before it had stored the details and given
        back the slots."""
        context = self._context
        over = JobOver(job_id=self.job_id, epoch=max(log.latest_epoch, terminal.epoch))
        try:
            await publish(context.transport, context.subjects.to_taskmanagers(over), over)
        except BrokerError as err:
            context.log.warning("announcement_failed", job_id=self.job_id, error=err.message)
        try:
            await self._store.get(archive_key(self.job_id))
        except KeyError:
            assert logged.accepted is not None
            details = JobDetails(
                job_id=self.job_id,
                name=logged.accepted.name,
                status=terminal.status,
                attempt=logged.inherited.job_attempt,
                epoch=terminal.epoch,
                start_ms=logged.accepted.timestamp_ms,
                end_ms=terminal.timestamp_ms,
                exceptions=await kept_exceptions(self._store, self.job_id) or _of_the_end(terminal),
            )
            await archive(self._store, details)
        else:
            from penstock.messages.layout import active_key

            await self._store.delete([active_key(self.job_id)])

    # -- messages ------------------------------------------------------------------------

    async def _serve(self, message: Any) -> Any:
        # This process was paused, or cannot reach the lease store. It does not answer, so that the sender
        # asks again and reaches the current leader.
        running = self._running
        if running is None or not self.election.still_leading() or not running.performer.may_act.is_set():
            return None
        try:
            return await running.actor.ask(message)
        except PenstockError as err:
            self._context.log.warning("request_not_answered", job_id=self.job_id, error=err.message)
            return None


def _of_the_end(terminal: Terminal) -> list[dict[str, Any]]:
    if terminal.error is None:
        return []
    return [{"timestamp_ms": terminal.timestamp_ms, "error": terminal.error, "exception": ""}]
