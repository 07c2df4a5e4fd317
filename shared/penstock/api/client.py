"""A client of a cluster's REST API: submit, watch, cancel, fetch results.

The client is synchronous and built on httpx. Every failure is a ``PenstockError``. An error that the cluster
sent is raised here as it was raised there; an error of the connection names the address and the remedy.
A request is repeated for up to ``patience_s`` seconds while the dispatcher does not answer.
"""

from __future__ import annotations

import base64
import json
import logging
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import tenacity

from penstock.credentials import credentials
from penstock.errors import REST_ERROR_TYPE, ExternalError, PenstockError, error_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

# httpx logs a line for every request, which does not belong into the user's log. A user who wants these lines
# sets the level after this import.
if logging.getLogger("httpx").level == logging.NOTSET:
    logging.getLogger("httpx").setLevel(logging.WARNING)

#: Seconds between two polls of an operation's state.
OPERATION_POLL_S = 0.1
#: Seconds without an event or a comment after which a tap counts as lost.
TAP_SILENCE_S = 30.0
TERMINAL = frozenset({"FINISHED", "FAILED", "CANCELED"})


@dataclass(frozen=True)
class ResultChunk:
    """One object of a job's results: ``key`` orders it, ``data`` is an Arrow IPC stream."""

    key: str
    data: bytes


class ClusterClient:
    """The client of one cluster. ``url``: the address of a dispatcher, such as ``http://127.0.0.1:8081``."""

    def __init__(
        self, url: str, *, patience_s: float = 20.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/") if "://" in url else f"http://{url}".rstrip("/")
        self._patience_s = patience_s
        self._transport = transport
        self._credentials = credentials(self.url)
        self._http = self._connections()

    def _connections(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            timeout=30.0,
            transport=self._transport,
            verify=self._credentials.tls(self.url),
            headers={"accept": f"application/json, {REST_ERROR_TYPE}", **self._credentials.headers()},
        )

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- jobs ------------------------------------------------------------------------

    def submit(self, spec: dict[str, Any]) -> str:
        """Submit a JobSpec and return its job id. The client chooses an id when the spec has none, so a
        repeated request cannot start the job twice."""
        spec = {**spec, "job_id": spec.get("job_id") or uuid.uuid4().hex}
        return str(self._call("POST", "/jobs", json=spec, timeout=120.0)["jobid"])

    def upload_package(self, name: str, content: bytes) -> str:
        """Upload a code package and return its id. A repeated upload is the same package."""
        reply = self._call("POST", "/jars/upload", files={"jarfile": (name, content)}, timeout=120.0)
        return str(reply["filename"]).rsplit("/", 1)[-1]

    def run_package(self, package_id: str, asked: dict[str, Any]) -> str:
        """Run a job from a package and return its id. ``asked``: the body of ``POST /jars/{jar}/run``; the client chooses a
        job id when it has none, so a repeated request is the same job."""
        asked = {**asked, "jobId": asked.get("jobId") or uuid.uuid4().hex}
        reply = self._call("POST", f"/jars/{quote(package_id, safe='')}/run", json=asked, timeout=120.0)
        return str(reply["jobid"])

    def job(self, job_id: str) -> dict[str, Any]:
        """The response to ``GET /jobs/{id}``: Flink's fields and Penstock's additional ones."""
        return self._object("GET", f"/jobs/{job_id}")

    def jobs(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/jobs/overview")["jobs"])

    def cancel(self, job_id: str) -> None:
        self._call("PATCH", f"/jobs/{job_id}", params={"mode": "cancel"})

    def heartbeat(self, job_id: str) -> None:
        """Tell the cluster that this client still watches the job
        (``execution.shutdown-on-attached-exit``)."""
        self._call("PATCH", f"/jobs/{job_id}/clientHeartbeat", json={})

    # -- checkpoints and savepoints ----------------------------------------------------

    def savepoint(self, job_id: str, directory: str | None = None) -> str:
        """Ask for a savepoint and return the trigger id. A repeated request means the same savepoint."""
        return self._trigger(f"/jobs/{job_id}/savepoints", {"target-directory": directory})

    def stop(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> str:
        """Stop the job with a savepoint and return the trigger id. ``drain``: event time reaches its end
        first."""
        return self._trigger(f"/jobs/{job_id}/stop", {"targetDirectory": directory, "drain": drain})

    def checkpoint(self, job_id: str, *, full: bool = False) -> str:
        kind = "FULL" if full else "CONFIGURED"
        return self._trigger(f"/jobs/{job_id}/checkpoints", {"checkpointType": kind})

    def _trigger(self, path: str, body: dict[str, Any]) -> str:
        trigger_id = uuid.uuid4().hex
        known = {key: value for key, value in body.items() if value is not None}
        reply = self._call("POST", path, json={**known, "triggerId": trigger_id})
        return str(reply["request-id"])

    def triggered(self, job_id: str, trigger_id: str) -> dict[str, Any]:
        """The state of a triggered operation: ``{status: {id}, operation, progress}``."""
        return self._object("GET", f"/jobs/{job_id}/checkpoints/{trigger_id}")

    def location(
        self, job_id: str, trigger_id: str, what: str, tell: Callable[[dict[str, Any]], None] | None = None
    ) -> str:
        """Wait for the operation ``trigger_id`` and return its location. ``what``: the operation's name in
        errors (savepoint, checkpoint); ``tell`` is called with the progress at each poll. ExternalError if
        the operation failed."""
        while True:
            reply = self.triggered(job_id, trigger_id)
            if reply["status"]["id"] == "COMPLETED":
                break
            if tell is not None:
                tell(reply.get("progress") or {})
            time.sleep(OPERATION_POLL_S)
        operation = reply["operation"] or {}
        if (cause := operation.get("failure-cause")) is not None:
            raise ExternalError(
                f"the {what} of job {job_id} failed",
                got=cause.get("stack-trace"),
                remedy=f"'penstock info {job_id}' shows the job; ask again when it runs",
            )
        return str(operation["location"])

    def dispose_savepoint(self, path: str) -> dict[str, Any]:
        """Delete the savepoint at ``path`` and return the response of the cluster."""
        trigger_id = self._call("POST", "/savepoint-disposal", json={"savepoint-path": path})["request-id"]
        return self._object("GET", f"/savepoint-disposal/{trigger_id}")

    def job_defaults(self) -> dict[str, str]:
        """The options of jobs in the cluster's configuration, as the defaults of a job that is planned here. A cluster
        that is older than this path has told none."""
        try:
            return dict(self._call("GET", "/cluster/job-defaults"))
        except PenstockError as err:
            if err.code == "PS-NOT-FOUND":
                return {}
            raise

    def jobmanager_config(self) -> dict[str, str]:
        return {entry["key"]: entry["value"] for entry in self._call("GET", "/jobmanager/config")}

    # -- what happened -----------------------------------------------------------------

    def exceptions(self, job_id: str) -> dict[str, Any]:
        return self._object("GET", f"/jobs/{job_id}/exceptions")

    def verdict(self, job_id: str) -> dict[str, Any]:
        """What is wrong with the job, why, and what to do."""
        return self._object("GET", f"/jobs/{job_id}/why")

    def verdicts(self) -> list[dict[str, Any]]:
        """Verdicts about the jobs that have not ended, and about those that failed within a day."""
        return list(self._call("GET", "/jobs/why")["jobs"])

    def checkpoints(self, job_id: str) -> dict[str, Any]:
        return self._object("GET", f"/jobs/{job_id}/checkpoints")

    def checkpoint_details(self, job_id: str, checkpoint_id: str) -> dict[str, Any]:
        return self._object("GET", f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}")

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: str, vertex_id: str) -> dict[str, Any]:
        return self._object("GET", f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}")

    def spark(self, job_id: str) -> dict[str, Any]:
        """What Spark did for the job: stages and log of each query."""
        return self._object("GET", f"/jobs/{job_id}/spark")

    def dead_letters(self, job_id: str, after: str = "") -> dict[str, Any]:
        """A page of the records that ``on-error`` = dead-letter set aside; ``after``: the last page's ``next``."""
        return self._object("GET", f"/jobs/{job_id}/dead-letters?limit=1000&after={quote(after, safe='')}")

    def replay_dead_letters(self, job_id: str, into: str = "") -> dict[str, Any]:
        """Send the job's dead letters again, once, into itself or the job ``into``: how many, and which cannot be sent."""
        return self._object("POST", f"/jobs/{job_id}/dead-letters/replay?into={quote(into, safe='')}")

    def edges(self, job_id: str) -> list[dict[str, Any]]:
        """The edges of the job's graph, with their ids."""
        return list(self._call("GET", f"/jobs/{job_id}/edges")["edges"])

    def tap(self, job_id: str, edge_id: str, rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """(name, data) of the events of a tap, until the job has ended: at most ``rows`` rows a second. ExternalError if
        the connection is lost."""
        path, name = f"/jobs/{job_id}/edges/{quote(edge_id, safe='')}/tap", ""
        try:
            # Events come once a second, comments included.
            with self._http.stream("GET", path, params={"rows": rows}, timeout=TAP_SILENCE_S) as response:
                if not response.is_success:
                    response.read()
                    self._checked(response, f"GET {path}")
                for line in response.iter_lines():
                    field, _, text = line.partition(": ")
                    if field == "event":
                        name = text
                    elif field == "data":
                        yield name, json.loads(text)
        except (httpx.TransportError, _Unavailable) as err:
            raise ExternalError(
                f"the rows of job {job_id} cannot be read",
                got=f"{type(err).__name__}: {err}",
                remedy="run it again; 'penstock health' shows whether the dispatcher is there",
            ) from err

    def accumulators(self, job_id: str) -> dict[str, int]:
        """Counters of the job's operators, added up over subtasks, by name."""
        reply = self._call("GET", f"/jobs/{job_id}/accumulators")
        return {a["name"]: int(a["value"]) for a in reply["user-task-accumulators"]}

    def vertex(self, job_id: str, vertex_id: str) -> dict[str, Any]:
        """A vertex with its subtasks."""
        return self._object("GET", f"/jobs/{job_id}/vertices/{vertex_id}")

    def subtask_times(self, job_id: str, vertex_id: str) -> list[dict[str, Any]]:
        """For each subtask of a vertex: the time at which it entered each state (ms)."""
        return list(self._call("GET", f"/jobs/{job_id}/vertices/{vertex_id}/subtasktimes")["subtasks"])

    def vertex_metrics(self, job_id: str, vertex_id: str) -> dict[str, Any]:
        """Metrics of a vertex: "<subtask>.<metric>" or "<subtask>.<operator>.<metric>" → value."""
        path = f"/jobs/{job_id}/vertices/{vertex_id}/metrics"
        names = ",".join(m["id"] for m in self._call("GET", path))
        found = self._call("GET", path, params={"get": names})
        return {m["id"]: m["value"] for m in found}

    def wait(
        self,
        job_id: str,
        *,
        on_progress: Callable[[dict[str, Any]], None] = lambda job: None,
        poll_s: float = 0.1,
    ) -> dict[str, Any]:
        """Wait until the job has ended. Returns its details; raises its error when it failed."""
        while True:
            job = self.job(job_id)
            on_progress(job)
            if job["state"] in TERMINAL:
                self.raise_if_failed(job_id, job)
                return job
            time.sleep(poll_s)

    def raise_if_failed(self, job_id: str, job: dict[str, Any]) -> None:
        if job["state"] != "FAILED":
            return
        root = self.exceptions(job_id).get("root-error")
        if root:
            raise error_from_dict(root)
        raise PenstockError(f"job {job_id} failed", remedy=f"see {self.url}/jobs/{job_id}/exceptions")

    def results(self, job_id: str, *, wait_ms: int = 1_000) -> Iterator[list[ResultChunk]]:
        """Lists of chunks as they appear (empty lists while there is nothing new), until the job has ended
        and all chunks were fetched."""
        after = ""
        while True:
            reply = self._call("GET", f"/jobs/{job_id}/results", params={"after": after, "wait_ms": wait_ms})
            chunks = [ResultChunk(c["key"], base64.b64decode(c["data"])) for c in reply["chunks"]]
            if chunks:
                after = chunks[-1].key
            yield chunks
            if not chunks and reply["status"] in TERMINAL:
                return

    # -- the cluster -------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        return self._object("GET", "/overview")

    def dashboard_config(self) -> httpx.Response:
        """The whole response of ``GET /config``: it tells the version, and its headers the dispatcher's time."""
        return self._http.get("/config")

    def info(self) -> dict[str, Any]:
        """The processes of the cluster, with their ids."""
        return self._object("GET", "/cluster/info")

    def taskmanagers(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "/taskmanagers")["taskmanagers"])

    def log_files(self, taskmanager_id: str) -> list[dict[str, Any]]:
        """The task manager's log files, each as ``{name, size, mtime}``; the file that was written last comes
        last."""
        return list(self._call("GET", f"/taskmanagers/{taskmanager_id}/logs")["logs"])

    def log_file(self, taskmanager_id: str, name: str, offset: int = 0) -> Iterator[bytes]:
        """The bytes from ``offset`` to the present end of the file, in pieces."""
        path = f"/taskmanagers/{taskmanager_id}/logs/{name}"
        try:
            with self._http.stream("GET", path, params={"offset": offset}) as response:
                if not response.is_success:
                    response.read()
                    self._checked(response, f"GET {path}")
                yield from response.iter_bytes()
        except (httpx.TransportError, _Unavailable) as err:
            raise ExternalError(
                f"the log of {taskmanager_id} cannot be read",
                got=f"{type(err).__name__}: {err}",
                remedy="'penstock info' shows whether the task manager is there",
            ) from err

    # -- inside -------------------------------------------------------------------------

    def _object(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        """The response of a path that responds with one JSON object."""
        found: dict[str, Any] = self._call(method, path, **kwargs)
        return found

    def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((httpx.TransportError, _Unavailable)),
            stop=tenacity.stop_after_delay(self._patience_s),
            wait=tenacity.wait_exponential(0.05, max=1.0),
            reraise=True,
        )
        try:
            # Every request may be repeated: submissions carry a job id.
            return retry(self._once, method, path, **kwargs)
        except (KeyboardInterrupt, SystemExit):
            # A signal interrupted the request, perhaps while it held a lock of these connections. Using or
            # closing them could then wait for ever, so the client opens new ones.
            self._http = self._connections()
            raise
        except (httpx.TransportError, _Unavailable) as err:
            raise ExternalError(
                f"the cluster at {self.url} does not answer",
                expected="a dispatcher's REST address with its port, such as http://127.0.0.1:8081",
                got=f"{type(err).__name__}: {err}",
                remedy="start one with 'penstock up', or give another address with --cluster",
            ) from err

    def _once(self, method: str, path: str, **kwargs: Any) -> Any:
        response = self._http.request(method, path, **kwargs)
        self._checked(response, f"{method} {path}")
        return response.json() if response.content else {}

    @staticmethod
    def _checked(response: httpx.Response, what: str) -> None:
        """Raises the error that an unsuccessful response describes."""
        if response.is_success:
            return
        try:
            body = response.json()
        except ValueError:
            body = {}
        if response.status_code in (502, 503, 504):
            raise _Unavailable(f"HTTP {response.status_code} {body.get('errors', '')}")
        if isinstance(body.get("error"), dict):
            raise error_from_dict(body["error"])
        text = "; ".join(body.get("errors", [])) or response.text[:300]
        raise ExternalError(f"{what} failed", got=f"HTTP {response.status_code}: {text}")


def raise_if_cancelled(job: dict[str, Any], job_id: str, name: str) -> None:
    """Raises ExternalError if somebody cancelled the job while this process waited for its end."""
    if job["state"] == "CANCELED":
        raise ExternalError(
            f"job {job_id} ({name}) was cancelled",
            expected="its end",
            got="somebody else cancelled it before",
            remedy="run it again if its rows are wanted",
        )


class _Unavailable(Exception):
    """The dispatcher is up but cannot reach a service that it needs; the request is repeated."""
