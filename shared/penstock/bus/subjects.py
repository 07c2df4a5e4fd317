"""The subject scheme of the bus; ``messages/cluster.py`` says what travels on each.

``<cluster>.<role>[.<id>].<verb>``: the verb is the message's tag.
"""

from __future__ import annotations

from typing import Any

from penstock.identifiers import MAX_TOKEN, checked, checked_job_id


def verb_of(message: Any) -> str:
    """The tag of a message or message class, which is the last token of its subject."""
    cls: Any = message if isinstance(message, type) else type(message)
    return str(cls.__struct_config__.tag)


def token(text: str, what: str) -> str:
    """``text`` when it can be one token of a subject; SpecError otherwise."""
    return checked(text, what, MAX_TOKEN)


class Subjects:
    """Subjects of one cluster."""

    def __init__(self, cluster: str = "penstock") -> None:
        self.cluster = token(cluster, "cluster.id")

    # -- dispatcher ---------------------------------------------------------------

    def jobs(self, verb: str) -> str:
        """``submit``, ``list``, ``status``, ``cancel``: any dispatcher (queue group)."""
        return f"{self.cluster}.jobs.{verb}"

    @property
    def jobs_submit(self) -> str:
        return self.jobs("submit")

    # -- jobmanager ---------------------------------------------------------------

    @property
    def jobmanager_run(self) -> str:
        """RunJob, to every jobmanager: bid for the job's lease."""
        return f"{self.cluster}.jobmanager.run"

    def job(self, job_id: str, verb: str) -> str:
        """The job's master; ``verb`` is a message's tag."""
        return f"{self.cluster}.job.{checked_job_id(job_id)}.{verb}"

    def to_job(self, job_id: str, message: Any) -> str:
        return self.job(job_id, verb_of(message))

    def job_all(self, job_id: str) -> str:
        """What the job's master subscribes."""
        return self.job(job_id, "*")

    # -- resourcemanager ----------------------------------------------------------

    def resourcemanager(self, verb: str) -> str:
        return f"{self.cluster}.resourcemanager.{verb}"

    def to_resourcemanager(self, message: Any) -> str:
        return self.resourcemanager(verb_of(message))

    @property
    def resourcemanager_all(self) -> str:
        """What the leading resource manager subscribes."""
        return self.resourcemanager("*")

    # -- taskmanager --------------------------------------------------------------

    def taskmanager(self, taskmanager_id: str, verb: str) -> str:
        return f"{self.cluster}.taskmanager.{token(taskmanager_id, 'task manager id')}.{verb}"

    def to_taskmanager(self, taskmanager_id: str, message: Any) -> str:
        return self.taskmanager(taskmanager_id, verb_of(message))

    def taskmanager_all(self, taskmanager_id: str) -> str:
        return self.taskmanager(taskmanager_id, "*")

    def to_taskmanagers(self, message: Any) -> str:
        """All of them; nobody answers."""
        return f"{self.cluster}.taskmanagers.{verb_of(message)}"

    @property
    def taskmanagers_all(self) -> str:
        """What every task manager subscribes."""
        return f"{self.cluster}.taskmanagers.*"

    # -- events -------------------------------------------------------------------

    def event(self, *tokens: str) -> str:
        """A notification anyone may subscribe; never the truth."""
        return ".".join((self.cluster, "events", *(token(t, "event") for t in tokens)))


def matches(pattern: str, subject: str) -> bool:
    """NATS' matching: ``*`` is one token, a last ``>`` is one or more."""
    wanted, got = pattern.split("."), subject.split(".")
    for i, part in enumerate(wanted):
        if part == ">":
            return len(got) > i
        if i >= len(got) or part not in ("*", got[i]):
            return False
    return len(wanted) == len(got)
