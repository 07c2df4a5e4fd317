"""Where a checkpoint's manifest is stored, and what the log says of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.messages.cluster import CheckpointCompleted
from penstock.messages.layout import manifest_key, savepoint_folder
from penstock_services.jobmanager.checkpoints import SAVEPOINTS, Completed, Pending
from penstock_services.jobmanager.effects import AppendLog, StoreManifest

if TYPE_CHECKING:
    from penstock.snapshots.manifest import CheckpointManifest
    from penstock_services.jobmanager.checkpoints import Request


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a job's checkpoints that the master with ``epoch`` takes.

    ``savepoint_dir``: the folder of savepoints that were requested without one.
    """

    job_id: str
    epoch: int
    savepoint_dir: str

    def directory(self, request: Request) -> str:
        """The folder for the savepoint: the requested one or the configured one."""
        return request.directory or self.savepoint_dir

    def manifest_key(self, pending: Pending) -> str:
        """The key of the checkpoint's manifest."""
        return manifest_key(self.job_id, pending.checkpoint_id, self.epoch)

    def savepoint_folder(self, pending: Pending) -> str | None:
        """The folder of a savepoint, or None. A savepoint is a copy that belongs to its owner; the job keeps
        a checkpoint of its own."""
        if pending.kind not in SAVEPOINTS:
            return None
        assert pending.request is not None
        directory = self.directory(pending.request)
        return savepoint_folder(directory, self.job_id, pending.checkpoint_id, self.epoch)

    def store(self, pending: Pending, manifest: CheckpointManifest) -> StoreManifest:
        """Stores the manifest."""
        return StoreManifest(self.manifest_key(pending), manifest, self.savepoint_folder(pending))

    def completed(self, pending: Pending) -> Completed:
        """The checkpoint as a completed one. Its manifest must be stored."""
        assert pending.manifest is not None, "that one was stored"
        return Completed(pending.checkpoint_id, self.manifest_key(pending), pending.manifest, pending.kind)

    def entry(self, pending: Pending, now_ms: int, beside: tuple[int, ...]) -> AppendLog:
        """Appends CheckpointCompleted to the log. ``beside``: as in the entry."""
        return AppendLog(
            CheckpointCompleted(
                epoch=self.epoch,
                checkpoint_id=pending.checkpoint_id,
                manifest_key=self.manifest_key(pending),
                timestamp_ms=now_ms,
                kind=pending.kind,
                trigger_id=pending.request.trigger_id if pending.request is not None else None,
                path=self.savepoint_folder(pending),
                beside=beside,
            )
        )
