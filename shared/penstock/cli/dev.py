"""``penstock dev FILE``: runs a job, and its next version whenever the file is saved, with the state of what did not change.

A version that cannot be planned changes nothing: its error is printed, and the job runs on.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.client import TERMINAL
from penstock.cli.jobs import ClusterAccess
from penstock.cli.leaving import cancel_job
from penstock.cli.run import KINDS, plan_file, spec_of
from penstock.cli.savepoint import compare_graph, summaries_at
from penstock.cli.sql import read_script
from penstock.config import RECOVERY_IGNORE_UNCLAIMED, RECOVERY_PATH
from penstock.errors import PenstockError, SpecError
from penstock.jobgraph.specs import SinkSpec

if TYPE_CHECKING:
    from penstock.api.client import ClusterClient
    from penstock.jobgraph import JobGraph
    from penstock.snapshots.compatibility import Difference

#: Seconds between two looks at the files and at the job.
LOOK_S = 0.3

Stamps = dict[Path, tuple[int, int]]


def run_dev(file: Path, *, cluster: str | None, config: dict[str, str], reload: bool) -> None:
    """Run the job of ``file`` until Ctrl-C, on ``cluster`` or on an embedded cluster.

    Raises SpecError for a file that is no job, and the error of the first version if it cannot be planned.
    """
    if file.suffix not in (".py", ".sql"):
        raise SpecError(
            "penstock dev takes a program or a script", expected="FILE.py or FILE.sql", got=str(file),
            remedy="penstock run takes files " + ", ".join(KINDS),
        )  # fmt: skip
    parallelism = int(config.get("parallelism.default", "1"))
    with (
        tempfile.TemporaryDirectory(prefix="penstock-dev-") as folder,
        ClusterAccess(cluster, slots=max(8, 4 * parallelism), slot_output=sys.stdout) as access,
    ):
        access.prepare()
        config = {**access.defaults(), **config}
        first = planned(file, config)
        savepoints = None if cluster else Path(folder).as_uri()
        versions = Versions(access.client, file, config, savepoints)
        try:
            versions.start(first, None)
            versions.follow(reload=reload)
        finally:
            versions.end()


def planned(file: Path, config: dict[str, str]) -> JobGraph:
    """The job of the file as it is now. Modules beside it are imported anew."""
    forget_modules(file.absolute().parent)
    graph = plan_file(file, spec_of(file, read_script(file), [], config))
    specs = [operator.spec for vertex in graph.vertices for operator in vertex.operators]
    if any(isinstance(spec, SinkSpec) and spec.connector == "collect" for spec in specs):
        raise SpecError(
            "penstock dev runs jobs that write their rows",
            expected="an INSERT, or a sink of a program",
            got="a query whose rows the client reads",
            where=str(file),
            remedy="INSERT INTO a table with 'connector' = 'print' shows the rows here",
        )
    return graph


def forget_modules(folder: Path) -> None:
    """Take the modules of ``folder`` out of the process, so that the next import reads them again."""
    for name, module in list(sys.modules.items()):
        source = getattr(module, "__file__", None)
        if name != "__main__" and source and Path(source).is_relative_to(folder) and ".venv" not in source:
            del sys.modules[name]


def stamps_of(file: Path) -> Stamps:
    """When the file, and the Python modules beside it, were changed: time in ns and size in bytes."""
    found: Stamps = {}
    for path in [file, *sorted(file.absolute().parent.glob("*.py"))]:
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue  # an editor replaces it at this moment
        found[path.absolute()] = (stat.st_mtime_ns, stat.st_size)
    return found


class Versions:
    """The versions of a job, one after the other.

    Args:
        client: The cluster's client.
        file: The job's file.
        config: The job's configuration.
        savepoints: The folder of savepoints, a URL; None: the cluster's own.
    """

    def __init__(
        self, client: ClusterClient, file: Path, config: dict[str, str], savepoints: str | None
    ) -> None:
        self._client, self._file, self._config, self._folder = client, file, config, savepoints
        self._job_id = ""
        self._graph: JobGraph | None = None
        self._savepoint: str | None = None
        self._told = ""

    def start(self, graph: JobGraph, savepoint: str | None) -> None:
        """Submit a version. Raises the cluster's error if it is refused."""
        if savepoint is not None:
            restored = {RECOVERY_PATH.key: savepoint, RECOVERY_IGNORE_UNCLAIMED.key: "true"}
            graph = msgspec.structs.replace(graph, config={**graph.config, **restored})
        job_id = uuid.uuid4().hex
        self._job_id = job_id  # known before the request: an interrupt cancels the job all the same
        spec = {"name": graph.name, "job_id": job_id, "job_graph": msgspec.to_builtins(graph)}
        self._client.submit(spec)
        self._graph, self._savepoint, self._told = graph, savepoint, ""
        say(f"job {job_id} ({graph.name}) runs; Ctrl-C ends it")

    def follow(self, *, reload: bool) -> None:
        """Look at the file and at the job until Ctrl-C; without ``reload`` until the job has ended."""
        seen = stamps_of(self._file)
        while True:
            job = self._client.job(self._job_id)
            self._tell_end(job, reload=reload)
            if job["state"] in TERMINAL and not reload:
                self._client.raise_if_failed(self._job_id, job)
                return
            time.sleep(LOOK_S)
            if reload and stamps_of(self._file) != seen:
                time.sleep(LOOK_S)  # an editor may write in several steps
                now = stamps_of(self._file)
                changed = sorted({path.name for path, _ in now.items() ^ seen.items()})
                seen = now
                say(f"changed: {', '.join(changed)}")
                self._replace()

    def _tell_end(self, job: dict[str, Any], *, reload: bool) -> None:
        if job["state"] not in TERMINAL or self._told == self._job_id:
            return
        self._told = self._job_id
        if job["state"] == "FAILED" and reload:
            try:
                self._client.raise_if_failed(self._job_id, job)
            except PenstockError as err:
                print(f"error: {err}", file=sys.stderr, flush=True)
        waits = "; the next version starts when the file is saved" if reload else ""
        say(f"job {self._job_id}: {job['state'].lower()}{waits}")

    def _replace(self) -> None:
        """Stop the job and start the file's version of now with its state."""
        try:
            graph = planned(self._file, self._config)
        except PenstockError as err:
            print(f"error: {err}", file=sys.stderr, flush=True)
            say("the version before runs on")
            return
        before, savepoint = self._graph, self._stopped() or self._savepoint
        if savepoint is not None:
            tell_difference(compare_graph(graph, summaries_at(savepoint)))
        try:
            self.start(graph, savepoint)
        except PenstockError as err:
            print(f"error: {err}", file=sys.stderr, flush=True)
            if before is not None:
                say("the version before starts again")
                self.start(before, savepoint)

    def _stopped(self) -> str | None:
        """Stop the job that runs with a savepoint and return it; None for a job that has ended."""
        state = self._client.job(self._job_id)["state"]
        if state in TERMINAL:
            return None
        try:
            trigger = self._client.stop(self._job_id, self._folder)
            location = self._client.location(self._job_id, trigger, "savepoint")
        except PenstockError as err:
            say(f"no savepoint could be taken: {err.message}")
            cancel_job(self._client, self._job_id, self._file.name)
            return None
        self._client.wait(self._job_id)
        return location

    def end(self) -> None:
        """Cancel the job, if it runs."""
        if self._job_id:
            cancel_job(self._client, self._job_id, self._file.name)


def tell_difference(difference: Difference) -> None:
    """Say which operators go on with their state, and which begin anew."""
    kept = [operator.name for operator in (*difference.mapped, *difference.converted) if operator.states]
    anew = [operator.name for operator in (*difference.changed, *difference.ambiguous)]
    gone = [operator.name for operator in difference.dropped]
    for what, names in (("keeps its state", kept), ("changed, begins anew", anew), ("is gone", gone)):
        if names:
            say(f"{what}: {', '.join(dict.fromkeys(names))}")


def say(text: str) -> None:
    print(f"[{text}]", file=sys.stderr, flush=True)
