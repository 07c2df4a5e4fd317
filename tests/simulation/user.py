"""A user of a simulated cluster: submits a job, may rescale it, waits until it is over."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.testing.simulation import Process
from tests.simulation.cluster import Client

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario
    from tests.simulation.workloads import Workload


def job_id_of(name: str) -> str:
    """The id of the job of this name, in the form that Flink's clients read: 32 hexadecimal digits."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


class User:
    """``name``: of the first job; each rescaling goes on as another. ``over``: all ended."""

    def __init__(self, scenario: Scenario, workload: Workload, name: str) -> None:
        self._scenario = scenario
        self._world = scenario.world
        self._workload = workload
        self._name = name
        #: grows with every order to rescale, 0 when it was taken
        self.rescaling_wanted = 0
        self.jobs: list[str] = []
        self.over = False

    async def run(self, process: Process) -> None:
        """When a rescaling is wanted, stops the job with a savepoint and goes on from there
        at another parallelism, as another job."""
        client = Client(self._scenario.cluster, process)
        job_id, parallelism, savepoint = job_id_of(self._name), self._workload.parallelism, None
        while True:
            graph = self._workload.graph(parallelism)
            self.jobs.append(job_id)
            try:
                await client.submit(job_id, graph, savepoint)
            except PenstockError as err:
                self._world.violated(f"the job was refused: {err}")
            stop = await self._until_over(client, job_id)
            savepoint = await self._stopped_with(client, job_id, stop)
            if savepoint is None:
                break
            job_id = job_id_of(f"{self._name}-{len(self.jobs) + 1}")
            parallelism = self._scenario.chance.choice((1, 2, 3))
            self._world.trace("client", "rescales", f"{job_id} at {parallelism} from {savepoint}")
        self.over = True
        await self._scenario.one_is_over()

    async def _until_over(self, client: Client, job_id: str) -> str | None:
        """The trigger of a stop that a master took meanwhile."""
        taken = None
        while True:
            if self.rescaling_wanted and taken is None:
                trigger = f"stop-{job_id}-{self.rescaling_wanted}"
                if await client.stop(job_id, trigger):
                    taken, self.rescaling_wanted = trigger, 0
            status = await client.status(job_id)
            if status is not None and status["status"] in ("FINISHED", "FAILED", "CANCELED"):
                break
            await asyncio.sleep(0.5)
        if status["status"] != "FINISHED":
            self._world.violated(f"the job ended {status['status']}: {status['error']}")
        return taken

    async def _stopped_with(self, client: Client, job_id: str, trigger_id: str | None) -> str | None:
        """The savepoint that was the job's end. A job that failed behind its savepoint went
        on, and may have come to its own end."""
        completed = self._scenario.watch.jobs[job_id].completed
        if trigger_id is None or not completed or completed[-1].kind != "stop":
            return None
        path = await client.savepoint_of(job_id, trigger_id)
        if path is None:
            self._world.violated(f"{job_id} was stopped with a savepoint of which its details say nothing")
        return path
