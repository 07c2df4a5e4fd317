"""One job at one job manager: it bids for the job's lease, and while it leads it runs the job's master.

A master that cannot renew its lease *pauses*: its decisions wait. If it gets the lease back and the log
holds no newer epoch, it continues (an absence of the lease store has cost nothing); otherwise a new master
begins from the log.
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
from penstock.messages.cluster import JobDetails, JobOver, ToJobMaster
from penstock.messages.layout import archive_key, checkpoints_prefix
from penstock.messages.slot import StorageSettings
from penstock.messages.states import JobStatus
from penstock.store import job_log
from penstock_services.common.actor import Actor
from penstock_services.common.election import LeaderElection
from penstock_services.common.main import storage_options
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.checkpoint_history import Statistics, newest_statistics, statistics_among
from penstock_services.jobmanager.inheritance import (
    highest_listed,
    in_phase,
    job_config,
    read_story,
    with_statistics,
)
from penstock_services.jobmanager.kept_exceptions import kept_exceptions
from penstock_services.jobmanager.master import JobMasterCore
from penstock_services.jobmanager.performer import Performer, archive
from penstock_services.jobmanager.stages import Settings, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.messages.cluster import Terminal
    from penstock.ports import LeaseStore, Store, Subscription
    from penstock.store import DecisionLog
    from penstock_services.common.main import ServiceContext
    from penstock_services.jobmanager.inheritance import Story


class _Reign:
    """A master at work, with its helpers."""

    def __init__(self, log: DecisionLog, core: JobMasterCore, actor: Actor, performer: Performer) -> None:
        self.log = log
        self.core = core
        self.actor = actor
        self.performer = performer
        self.subscription: Subscription | None = None


class Job:
    """``on_over(job_id, ended)``: the job is globally terminal; or (not ``ended``) the log holds no such job
    yet."""

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
        self._reign: _Reign | None = None
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
        try:
            await self.election.run()
        finally:
            await self._end_reign()

    # -- leadership ----------------------------------------------------------------------

    async def _gained(self) -> None:
        if self._reign is not None:
            if await self._still_ours(self._reign):
                self._context.log.info("job_resumed", job_id=self.job_id, epoch=self._reign.log.epoch)
                self._reign.performer.may_act.set()
                return
            await self._end_reign()
        log = job_log(self._store, self.job_id)
        await log.read()
        if not log.entries:
            self._context.log.warning("job_unknown", job_id=self.job_id)
            self._on_over(self.job_id, False)
            return
        if self._story(log).terminal is None:
            await log.lead(self._context.service_id, self._context.clock.now_ms())
        story = self._story(log)
        if story.terminal is not None:
            await self._tidy(log, story, story.terminal)
            self._on_over(self.job_id, True)
            return
        await self._begin_reign(log, story)

    def _story(self, log: DecisionLog) -> Story:
        return read_story(log.entries, conf.CHECKPOINT_RETAINED.read(self._context.config))

    async def _still_ours(self, reign: _Reign) -> bool:
        if reign.subscription is None:
            return False  # the bus was away when it began, so nobody would have reached it
        try:
            await reign.log.read()
            reign.log.check()
        except FencedError:
            return False
        return True

    async def _begin_reign(self, log: DecisionLog, story: Story) -> None:
        context = self._context
        assert story.accepted is not None
        whole = decode_job_graph(await self._store.get(story.accepted.job_graph_key))
        graph, phase = in_phase(whole, story)
        config = job_config(context.config, graph.config)
        story = read_story(log.entries, conf.CHECKPOINT_RETAINED.read(config))
        inherited = replace(
            story.inherited, exceptions=tuple(await kept_exceptions(self._store, self.job_id))
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
        reign = self._reign = _Reign(log, core, actor, performer)
        performer.may_act.set()
        context.supervisor.start(self._actor_name, lambda: self._run_master(reign))
        await actor.tell(fx.Begin())
        reign.subscription = await serve_typed(
            context.transport, context.subjects.job_all(self.job_id), ToJobMaster, self._serve
        )
        context.log.info(
            "leadership_acquired", job_id=self.job_id, name=graph.name, epoch=log.epoch,
            attempt=inherited.job_attempt or 1, phase=phase or "running",
        )  # fmt: skip

    async def _statistics(self, keys: Iterable[str]) -> list[Statistics]:
        """Statistics of the last checkpoints, as far as they can be read; they are only shown."""
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

    async def _run_master(self, reign: _Reign) -> None:
        """Runs the master. After an error of its core the state is not to be trusted: a new master begins
        from the log."""
        try:
            await reign.actor.run()
        except Exception:
            self._context.log.exception("job_master_failed", job_id=self.job_id)
            if self._reign is reign:
                reign.performer.may_act.clear()
                reign.log.epoch = 0  # never resumed
                self.election.resign()

    async def _end_reign(self) -> None:
        reign, self._reign = self._reign, None
        if reign is None:
            return
        if reign.subscription is not None:
            try:
                await reign.subscription.unsubscribe()
            except BrokerError as err:
                self._context.log.warning("unsubscribe_failed", job_id=self.job_id, error=err.message)
        await self._context.supervisor.stop(self._actor_name)

    async def _lost(self, reason: str) -> None:
        if self._reign is not None and self._reign.core.stage is not Stage.GONE:
            self._context.log.warning("leadership_lost", job_id=self.job_id, reason=reason)
            self._reign.performer.may_act.clear()

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
        if self._reign is not None:
            self._reign.log.epoch = 0  # never resumed
        self.election.resign()

    async def _tidy(self, log: DecisionLog, story: Story, terminal: Terminal) -> None:
        """The job ended, but its master died before it had stored the details and given the slots back."""
        context = self._context
        over = JobOver(job_id=self.job_id, epoch=max(log.latest_epoch, terminal.epoch))
        try:
            await publish(context.transport, context.subjects.to_taskmanagers(over), over)
        except BrokerError as err:
            context.log.warning("announcement_failed", job_id=self.job_id, error=err.message)
        try:
            await self._store.get(archive_key(self.job_id))
        except KeyError:
            assert story.accepted is not None
            details = JobDetails(
                job_id=self.job_id,
                name=story.accepted.name,
                status=terminal.status,
                attempt=story.inherited.job_attempt,
                epoch=terminal.epoch,
                start_ms=story.accepted.timestamp_ms,
                end_ms=terminal.timestamp_ms,
                exceptions=await kept_exceptions(self._store, self.job_id) or _of_the_end(terminal),
            )
            await archive(self._store, details)
        else:
            from penstock.messages.layout import active_key

            await self._store.delete([active_key(self.job_id)])

    # -- messages ------------------------------------------------------------------------

    async def _serve(self, message: Any) -> Any:
        # Resumed after a pause, or cut off from the lease store: do not answer, so that the sender asks
        # again and reaches the present leader.
        reign = self._reign
        if reign is None or not self.election.still_leading() or not reign.performer.may_act.is_set():
            return None
        try:
            return await reign.actor.ask(message)
        except PenstockError as err:
            self._context.log.warning("request_not_answered", job_id=self.job_id, error=err.message)
            return None


def _of_the_end(terminal: Terminal) -> list[dict[str, Any]]:
    if terminal.error is None:
        return []
    return [{"timestamp_ms": terminal.timestamp_ms, "error": terminal.error, "exception": ""}]
