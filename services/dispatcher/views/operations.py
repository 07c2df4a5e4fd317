"""Operations that one request starts and another one asks for the outcome: savepoints, checkpoints and
disposals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock_services.dispatcher.views.common import Camel, Kebab, Shape
from penstock_services.dispatcher.views.results import COMPLETED, IN_PROGRESS, StatusId
from penstock_services.dispatcher.views.throwable import Failure, failure

if TYPE_CHECKING:
    from penstock.messages.cluster import CheckpointDetails

# -- what is sent ------------------------------------------------------------------------------------


class TriggerCheckpoint(Camel, frozen=True, kw_only=True):
    """``checkpointType``: CONFIGURED, INCREMENTAL or FULL."""

    checkpoint_type: str = "CONFIGURED"
    trigger_id: str | None = None


class TriggerSavepoint(Kebab, frozen=True, kw_only=True):
    """``cancel-job``: the job ends with the savepoint."""

    target_directory: str | None = None
    cancel_job: bool = False
    format_type: str = msgspec.field(name="formatType", default="CANONICAL")
    trigger_id: str | None = msgspec.field(name="triggerId", default=None)


class StopWithSavepoint(Camel, frozen=True, kw_only=True):
    """``drain``: the highest watermark is sent first."""

    target_directory: str | None = None
    drain: bool = False
    format_type: str = "CANONICAL"
    trigger_id: str | None = None


class DisposeSavepoint(Kebab, frozen=True, kw_only=True):
    """Delete the savepoint at this path."""

    savepoint_path: str


# -- what is answered --------------------------------------------------------------------------------


class Triggered(Kebab, frozen=True, kw_only=True):
    """``request-id``: with it the outcome is requested."""

    request_id: str


class Outcome(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """``location``: the URL of a savepoint. A failure is given under both names that Flink has for it."""

    location: str | None = None
    checkpoint_id: int | None = msgspec.field(name="checkpointId", default=None)
    failure_cause: Failure | None = None
    failure_cause_: Failure | None = msgspec.field(name="failureCause", default=None)
    # Of ours: why a savepoint was deleted without its manifest.
    warning: str | None = None


class Progress(Shape, frozen=True, kw_only=True):
    """How many of the subtasks have acknowledged, and how many bytes they have written."""

    acknowledged: int
    total: int
    size: int


class Operation(Shape, frozen=True, kw_only=True):
    """``operation``: the outcome, once the operation has ended."""

    status: StatusId
    operation: Outcome | None
    # Of ours.
    progress: Progress | None = None


def of_checkpoint(found: CheckpointDetails, location: str | None) -> Operation:
    """The operation of a checkpoint or savepoint. ``location``: its URL."""
    progress = Progress(acknowledged=found.acknowledged, total=found.total, size=found.size_bytes)
    if found.status == "IN_PROGRESS":
        return Operation(status=IN_PROGRESS, operation=None, progress=progress)
    if found.status != "COMPLETED":
        return failed(failure("CheckpointException", found.failure or "the checkpoint failed"), progress)
    outcome = Outcome(location=location, checkpoint_id=found.id)
    return Operation(status=COMPLETED, operation=outcome, progress=progress)


def failed(cause: Failure, progress: Progress | None = None) -> Operation:
    """An operation that has failed."""
    outcome = Outcome(failure_cause=cause, failure_cause_=cause)
    return Operation(status=COMPLETED, operation=outcome, progress=progress)


def disposed(warning: str | None) -> Operation:
    """A savepoint that was deleted. ``warning``: why it was deleted without its manifest; None otherwise."""
    return Operation(status=COMPLETED, operation=Outcome(warning=warning))
