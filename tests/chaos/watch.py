"""Asking a cluster under faults about a job: whichever dispatcher answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.api.client import TERMINAL, ClusterClient
from penstock.errors import PenstockError

#: A hang ends a run instead of lasting for ever.
PATIENCE_S = 180.0
_POLL_S = 0.05


class ChaosFailure(Exception):
    """The system did what it must not."""


@dataclass(frozen=True)
class Seen:
    """What the job's master says at one moment; ``completed``: id of the last checkpoint."""

    state: str
    attempt: int
    restored: int
    epoch: int
    jobmanager: str
    completed: int
    in_progress: bool
    runs: bool


class Watch:
    def __init__(self, urls: list[str], job_id: str) -> None:
        self._clients = [ClusterClient(url, patience_s=0.5) for url in urls]
        self.job_id = job_id

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def ask(self, question: Callable[[ClusterClient], Any]) -> Any:
        """Of the first dispatcher that answers, or None when none does now."""
        for client in list(self._clients):
            try:
                return question(client)
            except PenstockError:
                self._clients.append(self._clients.pop(0))
        return None

    def look(self) -> Seen | None:
        job = self.ask(lambda c: c.job(self.job_id))
        checkpoints = self.ask(lambda c: c.checkpoints(self.job_id))
        if job is None or checkpoints is None:
            return None
        latest = (checkpoints.get("latest") or {}).get("completed") or {}
        counts = checkpoints.get("counts") or {}
        tasks = [v["tasks"] for v in job["vertices"]]
        return Seen(
            job["state"], job["attempt"], job["restored-checkpoint"], job["epoch"], job["jobmanager-id"],
            latest.get("id", 0), counts.get("in_progress", 0) > 0,
            job["state"] == "RUNNING"
            and all(sum(t.values()) == t["RUNNING"] + t["FINISHED"] for t in tasks),
        )  # fmt: skip

    def until(self, condition: Callable[[Seen], Any], what: str, patience_s: float = PATIENCE_S) -> Seen:
        """What was seen when ``condition`` first held. ChaosFailure when the job ends unasked,
        or with its story when patience does."""
        deadline = time.monotonic() + patience_s
        seen = None
        while time.monotonic() < deadline:
            now = self.look()
            seen = now or seen
            if now is not None:
                if condition(now):
                    return now
                if now.state in TERMINAL:
                    raise ChaosFailure(f"the job is {now.state}, waiting for {what}: {self.story()}")
            time.sleep(_POLL_S)
        raise ChaosFailure(f"still waiting after {patience_s:.0f} s for {what}; {seen}\n{self.story()}")

    def story(self) -> str:
        """Its exceptions, tasks and last checkpoints, as far as somebody answers."""
        job = self.ask(lambda c: c.job(self.job_id)) or {}
        checkpoints = self.ask(lambda c: c.checkpoints(self.job_id)) or {}
        lines = [f"{job.get('state')}, attempt {job.get('attempt')}, waits for {job.get('waiting-for')}"]
        lines += [f"  {v['name']}: {v['tasks']}" for v in job.get("vertices", [])]
        lines += [f"  checkpoints {checkpoints.get('counts')}"]
        lines += [f"  {entry}" for entry in checkpoints.get("history", [])[:3]]
        lines += [f"  exceptions {self.ask(lambda c: c.exceptions(self.job_id))}"]
        lines += [f"  cluster {self.ask(lambda c: c.overview())}"]
        return "\n".join(lines)
