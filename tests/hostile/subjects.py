"""Every subject that a service listens to, with the messages that it takes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.bus import Subjects
from penstock.messages.cluster import RunJob, SubmitJob
from penstock.messages.job_events import JobEvent
from penstock.messages.job_master import ToJobMaster
from penstock.messages.resource_manager import ToResourceManager
from penstock.messages.task_manager import ToTaskManager, ToTaskManagers
from tests.hostile.values import HOSTILE_TEXTS, Values, encoded, mutated

#: Kinds of receivers.
ROLES = (
    "jobs",
    "job managers",
    "a job",
    "resource manager",
    "a task manager",
    "task managers",
    "presence",
    "events",
)
_JOBS_VERBS = ("submit", "list", "status", "cancel")


@dataclass(frozen=True)
class Hostile:
    """``data`` for ``subject``; ``answered``: whether its receivers answer what they understand."""

    subject: str
    data: bytes
    answered: bool = True


class Messages:
    """Makes messages to every role. ``jobs`` and ``taskmanagers``: ids that exist. Epochs stay small: one that is
    higher than the leader's deposes the leader, which is what epochs are for; the bus's permissions say who may."""

    def __init__(
        self, rng: random.Random, subjects: Subjects, jobs: Sequence[str], taskmanagers: Sequence[str]
    ) -> None:
        self._rng = rng
        self._subjects = subjects
        self._jobs = list(jobs)
        self._taskmanagers = list(taskmanagers)
        known = {"job_id": jobs, "epoch": (0, 1), "slot_index": (0, 1, 7), "directory": (None, "/nowhere")}
        self.values = Values(rng, known, frozenset({"epoch"}))

    def next(self) -> Hostile:
        """One message: three of four are whole, the others damaged."""
        found = self._whole(self._rng.choice(ROLES))
        if self._rng.random() < 0.25:
            return Hostile(found.subject, mutated(self._rng, found.data), found.answered)
        return found

    def _whole(self, role: str) -> Hostile:
        to, rng = self._subjects, self._rng
        match role:
            case "jobs":
                verb = rng.choice(_JOBS_VERBS)
                return Hostile(to.jobs(verb), self._request(verb))
            case "job managers":
                return Hostile(to.jobmanager_run, encoded(self.values.message(RunJob)))
            case "a job":
                message = self.values.message(ToJobMaster)
                return Hostile(to.to_job(rng.choice(self._jobs), message), encoded(message))
            case "resource manager":
                message = self.values.message(ToResourceManager)
                return Hostile(to.to_resourcemanager(message), encoded(message))
            case "a task manager":
                message = self.values.message(ToTaskManager)
                return Hostile(to.to_taskmanager(rng.choice(self._taskmanagers), message), encoded(message))
            case "task managers":
                message = self.values.message(ToTaskManagers)
                return Hostile(to.to_taskmanagers(message), encoded(message), answered=False)
            case "events":
                event = self.values.message(JobEvent)
                return Hostile(to.job_events(rng.choice(self._jobs)), encoded(event), answered=False)
        verb = rng.choice(("who", "here"))
        return Hostile(f"{to.cluster}.processes.{verb}", encoded(self.values.json_value()), answered=False)

    def _request(self, verb: str) -> bytes:
        if verb == "submit":
            return encoded(self.values.message(SubmitJob))
        text = self._rng.choice((*self._jobs, *HOSTILE_TEXTS))
        return encoded({"job_id": text}) if self._rng.random() < 0.5 else text.encode(errors="replace")
