"""Checkpoints and savepoints over REST: a POST requests one and returns a trigger id; a GET returns its
outcome."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import config as conf
from penstock.errors import PenstockError, SpecError
from penstock.identifiers import checked
from penstock.messages import layout
from penstock.snapshots.manifest import folder_at
from penstock_services.common.http import ForbiddenError, NotFoundError, body_of
from penstock_services.dispatcher.disposal import dispose
from penstock_services.dispatcher.endpoint import Endpoint, get, post
from penstock_services.dispatcher.folders import AllowedFolders
from penstock_services.dispatcher.vertex_api import the_vertex
from penstock_services.dispatcher.views import checkpoints, operations
from penstock_services.dispatcher.views.operations import (
    DisposeSavepoint,
    Operation,
    StopWithSavepoint,
    TriggerCheckpoint,
    Triggered,
    TriggerSavepoint,
)
from penstock_services.dispatcher.views.throwable import failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from penstock.messages.cluster import CheckpointDetails, JobDetails
    from penstock_services.dispatcher.directory import JobDirectory

#: ``checkpointType`` → kind of ``TriggerSavepoint``.
CHECKPOINT_TYPES = {"CONFIGURED": "checkpoint", "INCREMENTAL": "checkpoint", "FULL": "full"}


class CheckpointApi:
    """The endpoints of checkpoints and savepoints."""

    def __init__(self, directory: JobDirectory, config: Mapping[str, str]) -> None:
        self._directory = directory
        self._folders = AllowedFolders(config)
        self._storage_url = conf.STORAGE_URL.read(config).rstrip("/")

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        job = "/jobs/{job}"
        one = f"{job}/checkpoints/details/{{checkpoint}}"
        asked: dict[str, Any] = {"status": 202}
        return [
            get(f"{job}/checkpoints", self._checkpoints, checkpoints.CheckpointingStatistics),
            post(f"{job}/checkpoints", self._checkpoint, Triggered, takes=TriggerCheckpoint, **asked),
            get(f"{job}/checkpoints/config", self._config, checkpoints.CheckpointConfig),
            get(one, self._details, checkpoints.Checkpoint),
            get(f"{one}/subtasks/{{vertex}}", self._subtasks, checkpoints.TaskCheckpointDetails),
            get(f"{job}/checkpoints/{{trigger}}", self._triggered, Operation),
            post(f"{job}/savepoints", self._savepoint, Triggered, takes=TriggerSavepoint, **asked),
            get(f"{job}/savepoints/{{trigger}}", self._triggered, Operation),
            post(f"{job}/stop", self._stop, Triggered, takes=StopWithSavepoint, **asked),
            post("/savepoint-disposal", self._dispose, Triggered, takes=DisposeSavepoint),
            get("/savepoint-disposal/{trigger}", self._disposed, Operation),
        ]

    async def _job(self, request: Request) -> JobDetails:
        return await self._directory.details(request.path_params["job"])

    # -- looking -------------------------------------------------------------------------

    async def _checkpoints(self, request: Request) -> checkpoints.CheckpointingStatistics:
        return checkpoints.checkpoints(await self._job(request))

    async def _config(self, request: Request) -> checkpoints.CheckpointConfig:
        return checkpoints.checkpoint_config(await self._job(request))

    async def _found(self, request: Request) -> tuple[JobDetails, CheckpointDetails]:
        details = await self._job(request)
        wanted = request.path_params["checkpoint"]
        for found in details.checkpoints:
            if str(found.id) == wanted:
                return details, found
        raise NotFoundError(
            f"checkpoint {wanted} of job {details.job_id} is not known (any more)",
            expected=", ".join(str(c.id) for c in details.checkpoints) or "none yet",
        )

    async def _details(self, request: Request) -> checkpoints.Checkpoint:
        return checkpoints.checkpoint_details(*await self._found(request))

    async def _subtasks(self, request: Request) -> checkpoints.TaskCheckpointDetails:
        details, found = await self._found(request)
        return checkpoints.checkpoint_subtasks(the_vertex(details, request.path_params["vertex"]), found)

    # -- asking --------------------------------------------------------------------------

    async def _checkpoint(self, request: Request) -> Triggered:
        options = await options_of(request)
        wanted = options.get("checkpointType", "CONFIGURED")
        if wanted not in CHECKPOINT_TYPES:
            raise SpecError("unknown checkpointType", expected=" | ".join(CHECKPOINT_TYPES), got=repr(wanted))
        return await self._trigger(request, CHECKPOINT_TYPES[wanted], None, options)

    async def _savepoint(self, request: Request) -> Triggered:
        options = await options_of(request)
        directory = options.get("target-directory") or options.get("targetDirectory")
        kind = "stop" if options.get("cancel-job") is True else "savepoint"
        return await self._trigger(request, kind, directory, options)

    async def _stop(self, request: Request) -> Triggered:
        options = await options_of(request)
        directory = options.get("targetDirectory") or options.get("target-directory")
        kind = "drain" if options.get("drain") is True else "stop"
        return await self._trigger(request, kind, directory, options)

    async def _trigger(
        self, request: Request, kind: str, directory: Any, options: dict[str, Any]
    ) -> Triggered:
        job_id = request.path_params["job"]
        if directory is not None and (not isinstance(directory, str) or ".." in directory.split("/")):
            raise ForbiddenError(
                "not a folder for savepoints", expected="a URL, an absolute path or a key, without '..'",
                got=repr(directory), remedy="name the folder itself",
            )  # fmt: skip
        self._folders.check_savepoints(directory, "the target folder")
        if options.get("formatType", "CANONICAL") not in ("CANONICAL", "NATIVE"):
            raise SpecError(
                "unknown formatType", expected="CANONICAL | NATIVE", got=repr(options["formatType"])
            )
        trigger_id = options.get("triggerId")
        if trigger_id is not None:
            if not isinstance(trigger_id, str):
                raise SpecError("not a triggerId", expected="a text", got=type(trigger_id).__name__)
            checked(trigger_id, "triggerId")
        return Triggered(request_id=await self._directory.savepoint(job_id, kind, directory, trigger_id))

    async def _triggered(self, request: Request) -> Operation:
        details = await self._job(request)
        trigger_id = request.path_params["trigger"]
        found = next((c for c in details.checkpoints if c.trigger_id == trigger_id), None)
        if found is None:
            raise NotFoundError(f"job {details.job_id} knows no request '{trigger_id}' (any more)")
        return operations.of_checkpoint(found, self._location(found.path))

    def _location(self, path: str | None) -> str | None:
        """The location as a URL, which means the same in every process."""
        if path is None or "://" in path:
            return path
        return f"{self._storage_url}/{path}"

    # -- disposal ------------------------------------------------------------------------

    async def _dispose(self, request: Request) -> Triggered:
        path = (await options_of(request)).get("savepoint-path")
        if not isinstance(path, str) or not path:
            raise SpecError(
                "the request names no savepoint", expected='{"savepoint-path": "…"}', got=repr(path)
            )
        trigger_id = uuid.uuid4().hex
        try:
            outcome = operations.disposed(await self._delete_savepoint(path))
        except PenstockError as err:
            outcome = operations.failed(failure(err.code, str(err), err.to_dict()))
        # The outcome is stored, because the next request may reach another dispatcher.
        await self._directory.store.put(layout.disposal_key(trigger_id), msgspec.json.encode(outcome))
        return Triggered(request_id=trigger_id)

    async def _delete_savepoint(self, path: str) -> str | None:
        store = self._directory.store
        self._folders.check_savepoints(path, "'savepoint-path'")
        path = layout.located(path)
        folder = (await folder_at(store, path)).removeprefix(f"{self._storage_url}/")
        if folder.startswith("jobs/"):
            raise ForbiddenError(
                "a job's own checkpoint is not disposed of", expected="a savepoint", got=path,
                remedy="it goes when its job does not need it any more",
            )  # fmt: skip
        return await dispose(store, folder)

    async def _disposed(self, request: Request) -> Operation:
        trigger_id = request.path_params["trigger"]
        try:
            data = await self._directory.store.get(layout.disposal_key(trigger_id))
        except KeyError:
            raise NotFoundError(f"there is no request '{trigger_id}'") from None
        return msgspec.json.decode(data, type=Operation)


async def options_of(request: Request) -> dict[str, Any]:
    """The JSON object in the body; an empty body is an empty object. Raises SpecError for anything else."""
    data = await body_of(request, 64 * 1024)
    if not data.strip():
        return {}
    try:
        tree = msgspec.json.decode(data)
    except msgspec.DecodeError as err:
        raise SpecError("the body is not JSON", got=str(err)) from err
    if not isinstance(tree, dict):
        raise SpecError("the body is not an object", expected="{…}", got=type(tree).__name__)
    return tree
