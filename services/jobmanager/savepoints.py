"""Requests for savepoints and checkpoints, until they reach the coordinator. Pure.

::

    asked ─→ probing (can anything be written there?) ─→ logging ─→ the coordinator's
                └→ refused                                  └→ refused, and that is logged

A request is answered when it is in the log: from then on every master of the job must bring it to an outcome. A request
without an outcome passes to the next master.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.jobgraph.graph import runs_on_spark
from penstock.messages.cluster import Ack, Refused, SavepointRequested
from penstock.messages.job_master import TriggerSavepoint
from penstock_services.jobmanager.checkpoints import SAVEPOINTS, Request
from penstock_services.jobmanager.effects import Answer, AppendLog, Effect, ProbeSavepoint
from penstock_services.jobmanager.stages import Stage

if TYPE_CHECKING:
    from penstock_services.jobmanager.job_state import JobState


@dataclass(slots=True)
class _Asked:
    """A request that is being checked or logged."""

    request: Request
    #: The tokens of the messages that wait for an answer.
    tokens: list[int] = field(default_factory=list)


class SavepointRequests:
    """The requests of one job."""

    def __init__(self, job: JobState) -> None:
        self._job = job
        self._asked: dict[str, _Asked] = {}

    def ask(self, token: int, message: TriggerSavepoint) -> list[Effect]:
        """A client requests a savepoint or checkpoint. A repetition, with the same id, receives the same
        answer."""
        trigger_id = message.command_id
        if trigger_id in self._asked:  # a repetition
            self._asked[trigger_id].tokens.append(token)
            return []
        if self._job.coordinator.knows(trigger_id):
            return [Answer(token, Ack())]
        request = Request(trigger_id, message.kind, message.directory)
        if reason := self._obstacle(request):
            return [Answer(token, Refused(reason=reason))]
        self._asked[trigger_id] = _Asked(request, [token])
        if request.kind not in SAVEPOINTS:
            return self._log(request)
        return [ProbeSavepoint(trigger_id, self._job.coordinator.places.directory(request))]

    def probed(self, trigger_id: str, problem: str | None) -> list[Effect]:
        """The folder was probed. ``problem``: why nothing can be written there; None if it can."""
        asked = self._asked.get(trigger_id)
        if asked is None:
            return []
        reason = problem or self._obstacle(asked.request)
        return self._answer(trigger_id, reason) if reason else self._log(asked.request)

    def _log(self, request: Request) -> list[Effect]:
        return [
            AppendLog(
                SavepointRequested(
                    epoch=self._job.settings.epoch,
                    trigger_id=request.trigger_id,
                    kind=request.kind,
                    directory=request.directory,
                )
            )
        ]

    def logged(self, entry: SavepointRequested, now_ms: int) -> list[Effect]:
        """The request is in the log."""
        job = self._job
        asked = self._asked.get(entry.trigger_id)
        if asked is None:
            return []
        reason = self._obstacle(asked.request)
        if reason is None:
            job.coordinator.request(asked.request)
            return self._answer(entry.trigger_id, None)
        over = job.stage in (Stage.CLOSING, Stage.ARCHIVING, Stage.GONE)
        effects = job.coordinator.refuse(asked.request, reason, now_ms, logs=not over)
        return effects + self._answer(entry.trigger_id, reason)

    def _obstacle(self, request: Request) -> str | None:
        job = self._job
        if job.stage is not Stage.DEPLOYED:
            return f"a {request.kind} needs a running job; this one is {job.status.value}"
        if job.settings.backfills:
            return f"a {request.kind} needs a running stream; this job is still {job.settings.phase}"
        if runs_on_spark(job.graph.job_graph):
            return f"a {request.kind} needs a job on the streaming engine; this one is Spark's: cancel it to end it"
        if job.coordinator.stopping:
            return "the job is being stopped with a savepoint already"
        return None

    def _answer(self, trigger_id: str, reason: str | None) -> list[Effect]:
        reply = Refused(reason=reason) if reason else Ack()
        return [Answer(token, reply) for token in self._asked.pop(trigger_id).tokens]
