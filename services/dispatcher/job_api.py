"""Jobs over REST: submission, lists, and single jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SpecError
from penstock.messages.cluster import JobSpec
from penstock_services.common.http import ForbiddenError, body_of, encoded_answer, number_of
from penstock_services.common.security.access import about, identity_of
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher.dead_letters import Replayed
from penstock_services.dispatcher.endpoint import Endpoint, get, patch, post
from penstock_services.dispatcher.spec import parse_spec
from penstock_services.dispatcher.views import configuration, exceptions, jobs, results
from penstock_services.dispatcher.views.common import Empty, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.messages.cluster import JobDetails
    from penstock.ports import Clock
    from penstock_services.dispatcher.dead_letters import DeadLetters
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.endpoint import Handler
    from penstock_services.dispatcher.results import Results
    from penstock_services.dispatcher.submission import Submitter


class Submitted(Shape, frozen=True, kw_only=True):
    """An accepted job. ``created``: False if a job with this id already existed. ``warnings``: of secrets in plain text."""

    job_url: str = msgspec.field(name="jobUrl")
    # Of ours.
    jobid: str
    name: str
    created: bool
    warnings: tuple[str, ...] = ()


class ClientAlive(Shape, frozen=True, kw_only=True):
    """The body of a heartbeat. The expiry in it is not read: the job's ``client.heartbeat.timeout`` counts,
    by the clock of its master."""

    expired_timestamp: int = msgspec.field(name="expiredTimestamp", default=0)


class JobApi:
    """The endpoints of jobs."""

    def __init__(
        self,
        directory: JobDirectory,
        submitter: Submitter,
        fetched: Results,
        clock: Clock,
        config: Mapping[str, str],
        letters: DeadLetters,
    ) -> None:
        self._directory = directory
        self._submitter = submitter
        self._results = fetched
        self._clock = clock
        self._config = config
        self._letters = letters
        self._rows = jobs.EncodedRows()

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        job = "/jobs/{job}"
        cancel: dict[str, Any] = {"status": 202, "query": ("mode",)}
        hidden = "The cluster's options; secrets are hidden."
        return [
            get("/jobs", self._jobs, jobs.JobIds),
            get("/jobs/overview", self._overview, jobs.JobsOverview),
            post(
                "/jobs",
                self._submit,
                Submitted,
                takes=JobSpec,
                role=Role.SUBMIT,
                note="The body is a job spec of Penstock.",
            ),
            get(job, self._of_job(jobs.job), jobs.Job),
            patch(job, self._cancel, Empty, **cancel),
            # Flink's dashboard cancels a job in this way if a proxy allows no PATCH.
            get(f"{job}/yarn-cancel", self._cancel_by_get, Empty, status=202, role=Role.OPERATE),
            patch(
                f"{job}/clientHeartbeat",
                self._client_heartbeat,
                Empty,
                status=202,
                takes=ClientAlive,
                role=Role.SUBMIT,
            ),
            get(
                f"{job}/config",
                self._of_job(lambda d, _: configuration.job_config(d)),
                configuration.JobConfig,
            ),
            get(f"{job}/plan", self._of_job(lambda d, _: jobs.JobPlan(plan=jobs.plan(d))), jobs.JobPlan),
            get(
                f"{job}/status",
                self._of_job(lambda d, _: jobs.JobState(status=d.status.value)),
                jobs.JobState,
            ),
            get(
                f"{job}/exceptions",
                self._exceptions,
                exceptions.JobExceptions,
                query=("maxExceptions", "failureLabelFilter"),
            ),
            get(
                f"{job}/accumulators",
                self._of_job(lambda d, _: results.job_accumulators(d)),
                results.JobAccumulators,
                query=("includeSerializedValue",),
                note="Operators' counters, also your own. Serialized values would be Java's: there are none.",
            ),
            get(
                f"{job}/execution-result",
                self._of_job(lambda d, _: results.execution_result(d)),
                results.ExecutionResult,
            ),
            get(f"{job}/jobmanager/config", self._cluster_config, list[configuration.Option], note=hidden),
            # To fetch rows deletes those before them.
            get(
                f"{job}/results",
                self._fetch,
                dict[str, Any],
                query=("after", "wait_ms"),
                ours=True,
                role=Role.SUBMIT,
            ),
            get(
                f"{job}/dead-letters", self._dead_letters, dict[str, Any], query=("after", "limit"), ours=True
            ),
            post(
                f"{job}/dead-letters/replay",
                self._replay,
                Replayed,
                query=("into",),
                ours=True,
                role=Role.OPERATE,
                note="Sends the dead letters of the job again, once, into itself or the job `into`.",
            ),
            get(f"{job}/spark", self._spark, dict[str, Any], ours=True),
        ]

    async def _details(self, request: Request) -> JobDetails:
        return await self._directory.details(request.path_params["job"])

    def _of_job(self, view: Callable[[JobDetails, int], Any]) -> Handler:
        async def handle(request: Request) -> Any:
            return view(await self._details(request), self._clock.now_ms())

        return handle

    async def _submit(self, request: Request) -> Submitted:
        spec = await asyncio.to_thread(parse_spec, await body_of(request))
        reply = await self._submitter.submit(spec, who=identity_of(request.scope))
        about(request.scope, job_id=reply.job_id, job_name=reply.name)
        url = f"/jobs/{reply.job_id}"
        return Submitted(
            job_url=url, jobid=reply.job_id, name=reply.name, created=reply.created, warnings=reply.warnings
        )

    async def _jobs(self, _: Request) -> jobs.JobIds:
        return jobs.job_ids(await self._directory.overviews())

    async def _overview(self, _: Request) -> Response:
        now_ms = self._clock.now_ms()
        return encoded_answer(self._rows.jobs_overview(await self._directory.overviews(), now_ms))

    async def _cancel(self, request: Request) -> Empty:
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise SpecError("unknown mode", expected="mode=cancel", got=repr(mode), where="query 'mode'")
        await self._directory.cancel(request.path_params["job"])
        return Empty()

    async def _cancel_by_get(self, request: Request) -> Empty:
        """Cancels a job by GET. A page of another site can make a browser send any GET, so requests that the
        browser marks as such are refused."""
        sender = request.headers.get("sec-fetch-site", "none")
        if sender not in ("none", "same-origin"):
            raise ForbiddenError(
                "requests from other sites are refused", expected="same-origin", got=repr(sender)
            )
        return await self._cancel(request)

    async def _client_heartbeat(self, request: Request) -> Empty:
        await body_of(request, 1024)
        await self._directory.client_heartbeat(request.path_params["job"])
        return Empty()

    async def _exceptions(self, request: Request) -> exceptions.JobExceptions:
        limit = number_of(request, "maxExceptions", 20)
        labels = _labels(request.query_params.get("failureLabelFilter"))
        return exceptions.exceptions(await self._details(request), limit, labels)

    async def _cluster_config(self, request: Request) -> list[configuration.Option]:
        await self._details(request)  # or it raises that there is no such job
        return configuration.options(self._config)

    async def _fetch(self, request: Request) -> dict[str, Any]:
        after = request.query_params.get("after", "")
        wait_ms = number_of(request, "wait_ms", 0)
        return await self._results.fetch(request.path_params["job"], after, wait_ms)

    async def _dead_letters(self, request: Request) -> dict[str, Any]:
        after, limit = request.query_params.get("after", ""), number_of(request, "limit", 100)
        return await self._letters.page(request.path_params["job"], after, limit)

    async def _replay(self, request: Request) -> Replayed:
        job_id = request.path_params["job"]
        return await self._letters.replay(job_id, request.query_params.get("into") or job_id)

    async def _spark(self, request: Request) -> dict[str, Any]:
        return await self._results.spark(request.path_params["job"])


def _labels(text: str | None) -> dict[str, str]:
    """The text ``key:value,…`` as a mapping."""
    pairs = [pair.partition(":") for pair in (text or "").split(",") if pair]
    if any(not colon for _, colon, _ in pairs):
        raise SpecError(
            "not a list of labels", expected="key:value,…", got=repr((text or "")[:80]),
            where="query 'failureLabelFilter'",
        )  # fmt: skip
    return {key: value for key, _, value in pairs}
