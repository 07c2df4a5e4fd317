"""The facts about jobs: from their masters while these run, from the archive once jobs have ended, and from
the decision logs while no master leads."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Union

import msgspec

from penstock.bus import NobodyServesError, RefusedError, request
from penstock.errors import BrokerError
from penstock.messages import layout
from penstock.messages.cluster import Ack, JobDetails, JobOverview
from penstock.messages.job_events import JobEvents, RequestJobEvents, after
from penstock.messages.job_master import CancelJob, ClientHeartbeat, RequestJobDetails, TriggerSavepoint
from penstock.messages.task_manager import (
    LogFiles,
    LogPiece,
    RequestLogFiles,
    RequestLogPiece,
    RequestStackSamples,
    RequestTap,
    RequestThreadStacks,
    StackSamples,
    TapRows,
    ThreadStacks,
)
from penstock_services.common.cluster_overview import cluster_overview, cluster_totals
from penstock_services.dispatcher.active_jobs import ActiveJobs, asked_in_turn
from penstock_services.dispatcher.logged import LoggedJobs, UnknownJobError
from penstock_services.dispatcher.overviews import Overviews
from penstock_services.dispatcher.shared_answer import SharedAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from penstock.bus import Subjects
    from penstock.messages.resource_manager import ClusterOverview
    from penstock.ports import Clock, Store, Transport

#: Time limits of requests to a master, of a request to the leading resource manager, of commands with repeats, and of requests
#: to a task manager. A resource manager that has ended is known at once, as nobody serves its subject then; one that takes long
#: hears a thousand task managers each second, and the clients' answer waits for several of its pages.
MASTER_TIMEOUT_S = 1.0
RESOURCEMANAGER_TIMEOUT_S = 5.0
COMMAND_DEADLINE_S = 10.0
TASKMANAGER_DEADLINE_S = 5.0
#: A slot that is in a long step does not answer its task manager, which waits for 2 s.
TAP_TIMEOUT_S = 4.0
#: So old may the details of all jobs be that are given to somebody: those who poll do so each second, or more seldom.
SHARED_MS = 1_000
_details = msgspec.json.Decoder(JobDetails)
_overview = msgspec.json.Decoder(JobOverview)


class JobDirectory:
    """Finds jobs and forwards requests to their masters, and to task managers.

    ``remember``: the clock by which rows of lists are remembered, and details of all jobs are shared by those who ask at the
    same time; ``changed`` must be told of each event then. None: each list asks all masters.
    """

    def __init__(
        self, transport: Transport, subjects: Subjects, store: Store, *, remember: Clock | None = None
    ) -> None:
        self._transport = transport
        self._subjects = subjects
        self._store = self.store = store
        self.logged = LoggedJobs(store)
        self._ended: dict[str, JobOverview] = {}
        self._remembered = (
            None if remember is None else Overviews(self._active_ids, self.ended, self._overview_of, remember)
        )
        self._all_details = None if remember is None else SharedAnswer(self._ask_all, remember, SHARED_MS)

    # -- one job -------------------------------------------------------------------------

    async def details(self, job_id: str) -> JobDetails:
        """The details of a job. Raises UnknownJobError if the job was never accepted."""
        live, _ = await self._from_master(job_id)
        return await self._completed(job_id, live)

    async def _completed(self, job_id: str, live: JobDetails | None) -> JobDetails:
        """The details of a job about which its master told ``live``."""
        if live is not None:
            self.logged.forget(job_id)
            if not live.status.globally_terminal:
                return live
        try:
            return _details.decode(await self._store.get(layout.archive_key(job_id)))
        except KeyError:
            return live or await self.logged.details(job_id)

    async def _from_master(self, job_id: str) -> tuple[JobDetails | None, bool]:
        """What the job's master tells, and whether there is a master that did not answer in time."""
        message = RequestJobDetails(job_id=job_id)
        subject = self._subjects.to_job(job_id, message)
        try:
            reply: JobDetails = await request(
                self._transport, subject, message, JobDetails, timeout_s=MASTER_TIMEOUT_S, retry=False
            )
        except NobodyServesError:
            return None, False
        except BrokerError:
            return None, True
        return reply, False

    async def cancel(self, job_id: str) -> None:
        """Returns when the master has taken the command, or if the job has ended."""
        if (await self.details(job_id)).status.globally_terminal:
            return
        message = CancelJob(command_id=uuid.uuid4().hex, job_id=job_id)
        await self._unless_ended(job_id, message)

    async def client_heartbeat(self, job_id: str) -> None:
        """Tells the master that the client which waits for the job is alive. Does nothing for a job that has
        ended."""
        await self._unless_ended(job_id, ClientHeartbeat(job_id=job_id), MASTER_TIMEOUT_S)

    async def savepoint(
        self, job_id: str, kind: str, directory: str | None, trigger_id: str | None = None
    ) -> str:
        """Requests a savepoint or checkpoint, and returns the trigger id. Raises RefusedError if the master
        refuses, or if the job has ended."""
        details = await self.details(job_id)
        asked_id = trigger_id
        trigger_id = trigger_id or uuid.uuid4().hex
        message = TriggerSavepoint(command_id=trigger_id, job_id=job_id, kind=kind, directory=directory)
        ended: JobDetails | None = details
        if not details.status.globally_terminal:
            try:
                ended = await self._unless_ended(job_id, message)
            except RefusedError as err:
                # The message may contain the further lines of an error of the store.
                raise _refused(err.message.partition("\n")[0], kind, job_id) from None
        # What ended the job may have been this request, if it is a repetition.
        if ended is not None and not (asked_id and any(c.trigger_id == asked_id for c in ended.checkpoints)):
            raise _refused(f"a {kind} needs a running job; this one is {ended.status.value}", kind, job_id)
        return trigger_id

    async def _unless_ended(
        self, job_id: str, message: Any, deadline_s: float = COMMAND_DEADLINE_S
    ) -> JobDetails | None:
        """Sends a command to the master. Returns the details of the job if it ended meanwhile, so that no master
        answers any more, else None. Raises BrokerError if no master answers for a job that has not ended."""
        try:
            await self._to_master(job_id, message, deadline_s)
        except BrokerError:
            details = await self.details(job_id)
            if details.status.globally_terminal:
                return details
            raise
        return None

    async def _to_master(self, job_id: str, message: Any, deadline_s: float = COMMAND_DEADLINE_S) -> None:
        subject = self._subjects.to_job(job_id, message)
        try:
            await request(self._transport, subject, message, Union[Ack], deadline_s=deadline_s)
        finally:
            self.changed(job_id)

    async def events(self, job_id: str, epoch: int = 0, sequence: int = 0) -> JobEvents:
        """The events of a job after a position, as far as its master, or its archive, knows them. Raises
        UnknownJobError if the job was never accepted, BrokerError while no master leads a job that has not ended."""
        message = RequestJobEvents(job_id=job_id, epoch=epoch, sequence=sequence)
        subject = self._subjects.to_job(job_id, message)
        try:
            reply: JobEvents = await request(
                self._transport, subject, message, JobEvents, timeout_s=MASTER_TIMEOUT_S, retry=False
            )
        except (BrokerError, RefusedError):  # it refuses once the job is over
            details = await self.details(job_id)
            if details.status.globally_terminal:
                return after(details.events, epoch, sequence)
            raise
        return reply

    # -- all jobs ------------------------------------------------------------------------

    def changed(self, job_id: str) -> None:
        """An event has told that something about the job has changed."""
        if self._remembered is not None:
            self._remembered.changed(job_id)
        if self._all_details is not None:
            self._all_details.outdated()

    async def _active_ids(self) -> list[str]:
        listed = await self._store.list(layout.ACTIVE_PREFIX)
        return [key.removeprefix(layout.ACTIVE_PREFIX) for key, _ in listed]

    async def active(self) -> ActiveJobs:
        """The jobs that have not ended, with details that are ``SHARED_MS`` old at most. They and the lists must not be
        changed."""
        return await (self._ask_all() if self._all_details is None else self._all_details.get())

    async def _ask_all(self) -> ActiveJobs:
        ids = await self._active_ids()
        answers = await asked_in_turn(self._from_master, ids)
        asked = [self._completed(job_id, live) for job_id, (live, _) in zip(ids, answers, strict=True)]
        found = await asyncio.gather(*map(self._unless_unknown, asked))
        unanswered = [job_id for job_id, (_, late) in zip(ids, answers, strict=True) if late]
        return ActiveJobs.of((job for job in found if job is not None), unanswered)

    async def _unless_unknown(self, asked: Awaitable[JobDetails]) -> JobDetails | None:
        try:
            return await asked
        except UnknownJobError:
            return None  # the index has the job, but its submission was interrupted

    async def _overview_of(self, job_id: str) -> JobOverview | None:
        details = await self._unless_unknown(self.details(job_id))
        return None if details is None else details.overview()

    async def overviews(self) -> list[JobOverview]:
        """The active jobs, then the ended ones, the latest first."""
        if self._remembered is None:
            active = [details.overview() for details in (await self.active()).details]
            ended = await self.ended()
        else:
            active, ended = await self._remembered.all()
        active.sort(key=lambda overview: (overview.start_ms, overview.job_id), reverse=True)
        running = {overview.job_id for overview in active}
        return active + [overview for overview in ended if overview.job_id not in running]

    async def ended(self, running: Collection[str] = ()) -> list[JobOverview]:
        """The ended jobs but for those in ``running``, the latest first."""
        listed = await self._store.list(layout.ENDED_PREFIX)
        ids = [key.removeprefix(layout.ENDED_PREFIX) for key, _ in listed]
        await asyncio.gather(*(self._load_ended(job_id) for job_id in ids if job_id not in self._ended))
        ended = [self._ended[i] for i in ids if i in self._ended and i not in running]
        return sorted(ended, key=lambda o: (-(o.end_ms or 0), o.job_id))

    async def _load_ended(self, job_id: str) -> None:
        try:
            self._ended[job_id] = _overview.decode(await self._store.get(layout.ended_key(job_id)))
        except KeyError:
            pass  # the entry was deleted after it had been listed

    # -- cluster -------------------------------------------------------------------------

    async def cluster(self) -> ClusterOverview | None:
        """The cluster's overview with all task managers; None while no resource manager leads."""
        return await self._led(cluster_overview)

    async def cluster_totals(self) -> ClusterOverview | None:
        """As ``cluster``, but without the task managers."""
        return await self._led(cluster_totals)

    async def _led(self, asked: Callable[..., Awaitable[ClusterOverview]]) -> ClusterOverview | None:
        try:
            return await asked(
                self._transport, self._subjects, timeout_s=RESOURCEMANAGER_TIMEOUT_S, retry=False
            )
        except BrokerError:
            return None

    async def log_files(self, taskmanager_id: str) -> LogFiles:
        """The log files of a task manager. Raises BrokerError if it does not answer."""
        reply: LogFiles = await self._from_taskmanager(taskmanager_id, RequestLogFiles(), LogFiles)
        return reply

    async def log_piece(self, taskmanager_id: str, name: str, offset: int) -> LogPiece:
        """A part of a log file. Raises BrokerError if the task manager does not answer, SpecError if it has
        no such file."""
        message = RequestLogPiece(name=name, offset=offset)
        reply: LogPiece = await self._from_taskmanager(taskmanager_id, message, LogPiece)
        return reply

    async def thread_stacks(self, taskmanager_id: str) -> ThreadStacks:
        """The stacks of a task manager's threads. Raises BrokerError if it does not answer."""
        reply: ThreadStacks = await self._from_taskmanager(
            taskmanager_id, RequestThreadStacks(), ThreadStacks
        )
        return reply

    async def stack_samples(
        self, taskmanager_id: str, job_id: str, samples: int, interval_ms: int
    ) -> StackSamples:
        """What the slots of a job on a task manager do in the next moments. Raises BrokerError if the task manager
        does not answer."""
        message = RequestStackSamples(job_id=job_id, samples=samples, interval_ms=interval_ms)
        timeout_s = samples * interval_ms / 1000 + TASKMANAGER_DEADLINE_S
        reply: StackSamples = await self._from_taskmanager(taskmanager_id, message, StackSamples, timeout_s)
        return reply

    async def tap(self, taskmanager_id: str, message: RequestTap) -> TapRows:
        """Rows that pass over an edge of a job on a task manager. Raises BrokerError if it does not answer."""
        reply: TapRows = await self._from_taskmanager(taskmanager_id, message, TapRows, TAP_TIMEOUT_S)
        return reply

    async def _from_taskmanager(
        self, taskmanager_id: str, message: Any, reply_type: Any, timeout_s: float = MASTER_TIMEOUT_S
    ) -> Any:
        return await request(
            self._transport,
            self._subjects.to_taskmanager(taskmanager_id, message),
            message,
            reply_type,
            timeout_s=timeout_s,
            deadline_s=max(timeout_s, TASKMANAGER_DEADLINE_S),
            retry=False,
        )


def _refused(reason: str, kind: str, job_id: str) -> RefusedError:
    return RefusedError(
        reason,
        expected="a running job on the streaming engine, and a folder or URL that its cluster can write to",
        where=f"{kind} of job {job_id}",
        remedy=f"`penstock info {job_id}` shows what the job does; name another folder if this one is the reason",
    )
