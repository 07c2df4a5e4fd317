"""Accepts a job: it is planned, checked and stored, JobAccepted is written to its log, and RunJob is sent.

A submission is idempotent by job id: a repetition is answered with the existing job.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.bus import request
from penstock.config import RECOVERY_PATH
from penstock.errors import PenstockError
from penstock.jobgraph.graph import encode_job_graph
from penstock.jobgraph.plain_secrets import plain_secrets
from penstock.messages import layout
from penstock.messages.cluster import Ack, JobAccepted, JobSpec, RunJob, SubmitReply
from penstock.snapshots.footers import summarise
from penstock.snapshots.manifest import read_manifest
from penstock.store import job_log
from penstock_services.common.http import too_many
from penstock_services.common.security.roles import ON_THE_BUS
from penstock_services.common.spans import Span
from penstock_services.common.tracing import NoTracer
from penstock_services.dispatcher import checks
from penstock_services.dispatcher.checks import Savepoint, Submission
from penstock_services.dispatcher.packages import archive_name
from penstock_services.dispatcher.policy import Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from penstock.bus import Subjects
    from penstock.jobgraph import JobGraph
    from penstock.ports import Clock, Store, Transport
    from penstock_services.common.security.roles import Identity
    from penstock_services.common.tracing import Tracer
    from penstock_services.dispatcher.planning import Planner

#: How long a job manager may take to answer RunJob. If none answers, one finds the job later by itself.
RUN_DEADLINE_S = 1.0


@dataclass(frozen=True)
class Code:
    """A code package from which a job is run. ``content``: its zip."""

    package_id: str
    content: bytes


class Submitter:
    """Accepts jobs for one dispatcher."""

    def __init__(
        self,
        *,
        transport: Transport,
        subjects: Subjects,
        store: Store,
        clock: Clock,
        planner: Planner,
        logger: Any,
        storage_url: str,
        policy: Policy | None = None,
        defaults: Mapping[str, str] | None = None,
        tracer: Tracer | None = None,
        on_accepted: Callable[[str], None] = lambda job_id: None,
    ) -> None:
        self._transport = transport
        self._subjects = subjects
        self._store = store
        self._clock = clock
        self._planner = planner
        self._logger = logger
        self._storage_url = storage_url
        self._policy = policy or Policy({})
        #: The options of jobs in the cluster's configuration.
        self._defaults = dict(defaults or {})
        self._tracer: Tracer = tracer or NoTracer()
        self._on_accepted = on_accepted

    async def submit(
        self,
        spec: JobSpec,
        command_id: str | None = None,
        who: Identity = ON_THE_BUS,
        code: Code | None = None,
    ) -> SubmitReply:
        """Accepts a job, and returns the reply. Raises SpecError or the planner's error if the job cannot be
        accepted, ForbiddenError if the cluster's policy is against it, TooManyError if ``who`` submits too much.

        ``command_id``: a repetition of the same command is the same job, even if the spec has no job id. ``code``: the
        package that the spec's program imports.
        """
        if wait_s := self._policy.limit.take(f"{who.via}:{who.name}", self._clock.now_ms() / 1000):
            raise too_many("too many submissions", wait_s)
        self._policy.check_spec(spec)
        job_id = spec.job_id
        if job_id is None and command_id is not None:
            job_id = hashlib.sha256(command_id.encode(errors="surrogatepass")).hexdigest()[:32]
        if job_id is not None and (known := await self._accepted(job_id)) is not None:
            await self._run(job_id)
            return SubmitReply(job_id=job_id, name=known.name, created=False)
        job_id, begun_ms = job_id or uuid.uuid4().hex, self._clock.now_ms()
        try:
            reply = await self._plan_and_accept(job_id, spec, who, code)
        except PenstockError as err:
            self._trace("Submission", job_id, begun_ms, err.message)
            raise
        self._trace("Submission", job_id, begun_ms)
        return reply

    def check_takes_python(self) -> None:
        """Raises ForbiddenError if the cluster takes no programs of Python."""
        self._policy.check_spec(JobSpec(python=""))

    async def planned(self, spec: JobSpec, who: Identity, code: Code) -> JobGraph:
        """The graph of the job that would be submitted. Raises as ``submit``."""
        if wait_s := self._policy.limit.take(f"{who.via}:{who.name}", self._clock.now_ms() / 1000):
            raise too_many("too many submissions", wait_s)
        self._policy.check_spec(spec)
        async with _on_disk(code) as path:
            return await self._plan(spec, who, path)

    async def _plan(self, spec: JobSpec, who: Identity, path: str | None) -> JobGraph:
        """The planned and checked job. ``path``: of the code package, which is no folder that the policy looks at."""
        begun_ms = self._clock.now_ms()
        files = [*spec.files, *([path] if path else [])]
        planned = await self._planner.plan(
            msgspec.structs.replace(spec, files=files, config=self._defaults | spec.config),
            self._policy.secrets_of(who),
        )
        self._trace("Planning", spec.job_id or "", begun_ms)
        others = tuple(entry for entry in planned.python_path if entry != path)
        self._policy.check_graph(msgspec.structs.replace(planned, python_path=others), who)
        return await self._checked(spec, planned)

    async def _plan_and_accept(
        self, job_id: str, spec: JobSpec, who: Identity, code: Code | None
    ) -> SubmitReply:
        async with _on_disk(code) as path:
            graph = await self._plan(msgspec.structs.replace(spec, job_id=job_id), who, path)
        if code is not None:
            key = layout.job_package_key(job_id, code.package_id)
            await self._store.put(key, code.content)
            entries = tuple(key if entry == path else entry for entry in graph.python_path)
            graph = msgspec.structs.replace(graph, python_path=entries)
        # The index entry is there before the log, because an accepted job that is in no list would never be found.
        accepted, _ = await asyncio.gather(
            self._store_job(job_id, spec, graph), self._store.put(layout.active_key(job_id), b"")
        )
        created = await job_log(self._store, job_id).begin(accepted)
        name = graph.name
        if not created and (known := await self._accepted(job_id)) is not None:
            name = known.name
        self._logger.info("job_accepted", job_id=job_id, name=name, created=created)
        if warnings := plain_secrets(graph):
            self._logger.warning("plain_secrets", job_id=job_id, secrets=list(warnings))
        self._on_accepted(job_id)
        await self._run(job_id)
        return SubmitReply(job_id=job_id, name=name, created=created, warnings=warnings)

    def _trace(self, name: str, job_id: str, begun_ms: int, error: str | None = None) -> None:
        self._tracer.export(Span(name, begun_ms, self._clock.now_ms(), job_id, {"jobId": job_id}, error))

    async def _checked(self, spec: JobSpec, graph: JobGraph) -> JobGraph:
        """The graph after all checks, also of the savepoint. Raises SpecError if the savepoint does not fit
        the job, SnapshotError if it cannot be read."""
        planned = Submission(spec, graph, self._storage_url, self._defaults)
        submission = checks.passed(planned, checks.OF_THE_PLAN)
        path = RECOVERY_PATH.read(submission.graph.config)
        if not path:
            return submission.graph
        manifest = await read_manifest(self._store, path)
        savepoint = Savepoint(path, manifest, await summarise(self._store, manifest, path))
        submission = checks.passed(replace(submission, savepoint=savepoint), checks.OF_THE_SAVEPOINT)
        if states := checks.states_to_ask_for(submission):
            problems = await self._planner.state_problems(submission.graph, states)
            submission = replace(submission, state_problems=tuple(problems))
        return checks.passed(submission, checks.OF_THE_STATES).graph

    async def _accepted(self, job_id: str) -> JobAccepted | None:
        entry = await job_log(self._store, job_id).first()
        return entry if isinstance(entry, JobAccepted) else None

    async def _store_job(self, job_id: str, spec: JobSpec, graph: JobGraph) -> JobAccepted:
        """Stores the job under keys that contain a digest of its content. So the entry that wins the race for
        the log names its own objects."""
        plan = encode_job_graph(graph)
        # The job graph is stored once, so it is left out of the spec.
        text = msgspec.json.encode(msgspec.structs.replace(spec, job_graph=None))
        digest = hashlib.sha256(text + plan).hexdigest()[:16]
        accepted = JobAccepted(
            job_id=job_id,
            name=graph.name,
            timestamp_ms=self._clock.now_ms(),
            job_graph_key=f"{layout.graph_key(job_id)}-{digest}",
            spec_key=f"{layout.spec_key(job_id)}-{digest}",
            max_parallelism={v.id: v.max_parallelism for v in graph.vertices},
        )
        await asyncio.gather(
            self._store.put(accepted.job_graph_key, plan), self._store.put(accepted.spec_key, text)
        )
        return accepted

    async def _run(self, job_id: str) -> None:
        message = RunJob(command_id=f"run-{job_id}", job_id=job_id)
        try:
            await request(
                self._transport,
                self._subjects.jobmanager_run,
                message,
                Ack,
                timeout_s=RUN_DEADLINE_S,
                deadline_s=RUN_DEADLINE_S,
            )
        except PenstockError as err:
            self._logger.warning("jobmanager_unreachable", job_id=job_id, error=err.message)


@contextlib.asynccontextmanager
async def _on_disk(code: Code | None) -> AsyncIterator[str | None]:
    """The path of the package while its job is planned; None without a package."""
    if code is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="penstock-package-") as folder:
        path = Path(folder) / archive_name(code.package_id)
        await asyncio.to_thread(path.write_bytes, code.content)
        yield str(path)
