"""Flink's ``/jars``, whose files are code packages of Python here: upload, list, plan, run, delete."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import config as conf
from penstock.errors import SpecError
from penstock.messages.cluster import JobSpec
from penstock_services.common.http import body_of, is_number
from penstock_services.common.security.access import about, identity_of
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher.endpoint import Endpoint, get, post
from penstock_services.dispatcher.multipart import uploaded_file
from penstock_services.dispatcher.packages import Packages, program_of
from penstock_services.dispatcher.spec import spec_of
from penstock_services.dispatcher.submission import Code
from penstock_services.dispatcher.views import packages as views
from penstock_services.dispatcher.views.common import Empty
from penstock_services.dispatcher.views.jobs import JobPlan, plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from penstock_services.dispatcher.submission import Submitter

MAX_REQUEST_BYTES = 1 << 20
_QUERY = (
    "entry-class",
    "programArg",
    "program-args",
    "parallelism",
    "allowNonRestoredState",
    "savepointPath",
)
#: What a savepoint is to the job that starts from it: always its owner's.
_CLAIM_MODES = (None, "NO_CLAIM")


class PackageApi:
    """The endpoints of code packages."""

    def __init__(self, packages: Packages, submitter: Submitter, config: Mapping[str, str]) -> None:
        self._packages = packages
        self._submitter = submitter
        self._limit = conf.MAX_PACKAGE_BYTES.read(config)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        jar: str = "/jars/{jar}"
        asks: dict[str, Any] = {"role": Role.SUBMIT, "query": _QUERY}
        upload = "A zip, a wheel or a Python file as multipart/form-data."
        entry = "`entryClass` is a module, or `module:function`."
        return [
            get("/jars", self._list, views.PackageList),
            post("/jars/upload", self._upload, views.PackageUploaded, note=upload, role=Role.SUBMIT),
            Endpoint("DELETE", jar, self._delete, Empty, role=Role.SUBMIT),
            get(f"{jar}/plan", self._plan, JobPlan, note=entry, **asks),
            post(f"{jar}/plan", self._plan, JobPlan, takes=views.RunPackage, note=entry, **asks),
            post(f"{jar}/run", self._run, views.PackageRun, takes=views.RunPackage, note=entry, **asks),
            post(
                f"{jar}/run-application",
                self._run_application,
                views.ApplicationRun,
                takes=views.RunApplication,
                status=202,
                note="As `run`: each job is an application of its own, with the job's id.",
                **asks,
            ),
        ]

    async def _list(self, request: Request) -> views.PackageList:
        return views.package_list(str(request.base_url).rstrip("/"), await self._packages.all())

    async def _upload(self, request: Request) -> views.PackageUploaded:
        self._submitter.check_takes_python()
        body = await body_of(request, self._limit)
        name, content = await asyncio.to_thread(uploaded_file, request.headers.get("content-type", ""), body)
        package = await self._packages.add(name, content)
        return views.PackageUploaded(filename=f"/packages/{package.id}")

    async def _delete(self, request: Request) -> Empty:
        await self._packages.delete(request.path_params["jar"])
        return Empty()

    async def _plan(self, request: Request) -> JobPlan:
        spec, code = await self._asked(request)
        graph = await self._submitter.planned(spec, identity_of(request.scope), code)
        return JobPlan(plan=plan(views.planned(graph)))

    async def _run(self, request: Request) -> views.PackageRun:
        return views.PackageRun(jobid=await self._submitted(request))

    async def _run_application(self, request: Request) -> views.ApplicationRun:
        return views.ApplicationRun(applicationid=await self._submitted(request, views.RunApplication))

    async def _submitted(self, request: Request, takes: type[views.RunPackage] = views.RunPackage) -> str:
        spec, code = await self._asked(request, takes)
        reply = await self._submitter.submit(spec, who=identity_of(request.scope), code=code)
        about(request.scope, job_id=reply.job_id, job_name=reply.name)
        return reply.job_id

    async def _asked(
        self, request: Request, takes: type[views.RunPackage] = views.RunPackage
    ) -> tuple[JobSpec, Code]:
        package = await self._packages.find(request.path_params["jar"])
        asked = asked_of(request.query_params.multi_items(), await body_of(request, MAX_REQUEST_BYTES), takes)
        program = program_of(package, asked.entry_class or "")
        spec = spec_of(
            {
                "python": program,
                "job_id": job_id_of(asked) or uuid.uuid4().hex,
                "args": arguments(asked),
                "parallelism": asked.parallelism,
                "config": configuration(asked),
            }
        )
        return spec, Code(package.id, await self._packages.content(package))


def asked_of(
    query: list[tuple[str, str]], body: bytes, takes: type[views.RunPackage] = views.RunPackage
) -> views.RunPackage:
    """The request in a JSON body, and in the query as Flink's clients send it; the body counts. ``takes``: the type of
    the body. Raises SpecError."""
    given: dict[str, Any] = {}
    for key, text in query:
        match key:
            case "entry-class":
                given["entryClass"] = text
            case "programArg":
                given["programArgsList"] = text.split(",")
            case "program-args":
                given["programArgs"] = text
            case "parallelism" if is_number(text):
                given["parallelism"] = int(text)
            case "allowNonRestoredState" if text.lower() in ("true", "false"):
                given["allowNonRestoredState"] = text.lower() == "true"
            case "savepointPath":
                given["savepointPath"] = text
            case _:
                raise SpecError(
                    "a parameter is not understood", expected=", ".join(_QUERY), got=f"{key}={text}"[:120], where="query"
                )  # fmt: skip
    try:
        if body.strip():
            given.update(
                {k: v for k, v in msgspec.json.decode(body, type=dict[str, Any]).items() if v is not None}
            )
        return msgspec.convert(given, takes)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as err:
        raise SpecError(
            f"the request to run a code package is malformed: {err}",
            expected="a JSON object with " + ", ".join(f.encode_name for f in msgspec.structs.fields(takes)),
        ) from err


def job_id_of(asked: views.RunPackage) -> str | None:
    """The id that the job gets; None: any. Raises SpecError if the application is to have another id than its job."""
    application_id = asked.application_id if isinstance(asked, views.RunApplication) else None
    if None not in (asked.job_id, application_id) and asked.job_id != application_id:
        raise SpecError(
            "an application has the id of its one job",
            expected=f"applicationId {asked.job_id}",
            got=str(application_id)[:80],
            where="applicationId",
            remedy="leave one of the two out",
        )
    return asked.job_id or application_id


def arguments(asked: views.RunPackage) -> list[str]:
    """The program's arguments. Raises SpecError for a quote that does not end."""
    if asked.program_args_list is not None:
        return asked.program_args_list
    try:
        return shlex.split(asked.program_args or "")
    except ValueError as err:
        raise SpecError(f"the program's arguments cannot be split: {err}", where="programArgs") from err


def configuration(asked: views.RunPackage) -> dict[str, str]:
    """The job's configuration. Raises SpecError for a mode of claiming savepoints that there is not."""
    for mode in (asked.claim_mode, asked.restore_mode):
        if mode not in _CLAIM_MODES:
            raise SpecError(
                "a savepoint stays its owner's",
                expected="claimMode NO_CLAIM",
                got=repr(mode)[:60],
                where="claimMode",
            )
    config = dict(asked.flink_configuration or {})
    if asked.savepoint_path:
        config[conf.RECOVERY_PATH.key] = asked.savepoint_path
    if asked.allow_non_restored_state is not None:
        config[conf.RECOVERY_IGNORE_UNCLAIMED.key] = str(asked.allow_non_restored_state).lower()
    return config
