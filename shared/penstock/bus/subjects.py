"""The subject scheme of the bus; ``messages/cluster.py`` lists the messages on each subject.

A subject is ``<cluster>.<role>[.<id>].<verb>``, where the verb is the message's tag.
"""

from __future__ import annotations

from typing import Any

from penstock.identifiers import MAX_TOKEN, checked, checked_job_id


def verb_of(message: Any) -> str:
    """The tag of a message or of a message class. It is the last token of the message's subject."""
    cls: Any = message if isinstance(message, type) else type(message)
    return str(cls.__struct_config__.tag)


def token(text: str, what: str) -> str:
    """``text`` itself if it can be one token of a subject. Raises SpecError otherwise; ``what`` names it in
    the error."""
    return checked(text, what, MAX_TOKEN)


class Subjects:
    """The subjects of one cluster. Raises SpecError if ``cluster``, the cluster id, cannot be one token of a
    subject."""

    def __init__(self, cluster: str = "penstock") -> None:
        self.cluster = token(cluster, "cluster.id")

    # -- dispatcher ---------------------------------------------------------------

    def jobs(self, verb: str) -> str:
        """Requests to any dispatcher; ``verb`` is ``submit``, ``list``, ``status`` or ``cancel``."""
        return f"{self.cluster}.jobs.{verb}"

    @property
    def jobs_submit(self) -> str:
        """Submissions of jobs, to any dispatcher."""
        return self.jobs("submit")

    def job_events(self, job_id: str) -> str:
        """Where the master of a job tells what happens to the job (``messages/job_events.py``). Raises SpecError for
        an invalid job id."""
        return f"{self.cluster}.jobs.{checked_job_id(job_id)}.events"

    @property
    def all_job_events(self) -> str:
        """The pattern of the events of all jobs."""
        return f"{self.cluster}.jobs.*.events"

    # -- jobmanager ---------------------------------------------------------------

    @property
    def jobmanager_run(self) -> str:
        """RunJob, to every job manager: each competes for the job's lease."""
        return f"{self.cluster}.jobmanager.run"

    def job(self, job_id: str, verb: str) -> str:
        """A message to the master of a job; ``verb`` is the message's tag. Raises SpecError for an invalid
        job id."""
        return f"{self.cluster}.job.{checked_job_id(job_id)}.{verb}"

    def to_job(self, job_id: str, message: Any) -> str:
        """The subject of ``message`` to the master of a job."""
        return self.job(job_id, verb_of(message))

    def job_all(self, job_id: str) -> str:
        """The pattern to which the master of a job subscribes."""
        return self.job(job_id, "*")

    # -- resourcemanager ----------------------------------------------------------

    def resourcemanager(self, verb: str) -> str:
        """A message to the leading resource manager; ``verb`` is the message's tag."""
        return f"{self.cluster}.resourcemanager.{verb}"

    def to_resourcemanager(self, message: Any) -> str:
        """The subject of ``message`` to the leading resource manager."""
        return self.resourcemanager(verb_of(message))

    @property
    def resourcemanager_all(self) -> str:
        """The pattern to which the leading resource manager subscribes."""
        return self.resourcemanager("*")

    # -- taskmanager --------------------------------------------------------------

    def taskmanager(self, taskmanager_id: str, verb: str) -> str:
        """A message to one task manager; ``verb`` is the message's tag. Raises SpecError for an invalid id."""
        return f"{self.cluster}.taskmanager.{token(taskmanager_id, 'task manager id')}.{verb}"

    def to_taskmanager(self, taskmanager_id: str, message: Any) -> str:
        """The subject of ``message`` to one task manager."""
        return self.taskmanager(taskmanager_id, verb_of(message))

    def taskmanager_all(self, taskmanager_id: str) -> str:
        """The pattern to which one task manager subscribes for its own messages."""
        return self.taskmanager(taskmanager_id, "*")

    def to_taskmanagers(self, message: Any) -> str:
        """The subject of ``message`` to all task managers. None of them answers."""
        return f"{self.cluster}.taskmanagers.{verb_of(message)}"

    @property
    def taskmanagers_all(self) -> str:
        """The pattern to which every task manager subscribes for messages to all of them."""
        return f"{self.cluster}.taskmanagers.*"

    # -- events -------------------------------------------------------------------

    def event(self, *tokens: str) -> str:
        """A notification to which anybody may subscribe. It may be lost, so no decision depends on it."""
        return ".".join((self.cluster, "events", *(token(t, "event") for t in tokens)))


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject fits a pattern by the rules of NATS: ``*`` stands for one token, a last ``>`` for one
    or more."""
    wanted, got = pattern.split("."), subject.split(".")
    for i, part in enumerate(wanted):
        if part == ">":
            return len(got) > i
        if i >= len(got) or part not in ("*", got[i]):
            return False
    return len(wanted) == len(got)
