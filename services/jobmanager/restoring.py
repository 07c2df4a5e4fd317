"""Which snapshot a job starts from: the manifests to load, then the state by uid. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import RECOVERY_IGNORE_UNCLAIMED, RECOVERY_PATH
from penstock.errors import SpecError
from penstock.snapshots.manifest import handles_by_vertex
from penstock_services.jobmanager.checkpoints import Completed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.slot import StateHandle
    from penstock.snapshots.manifest import CheckpointManifest
    from penstock_services.jobmanager.stages import Inherited


class Loading:
    """The manifests to read before the job can start: those of the completed checkpoints in the log or, if
    there are none, that of the savepoint in the configuration."""

    def __init__(self, inherited: Inherited, config: Mapping[str, str]) -> None:
        keys = [key for _, key, _ in inherited.completed]
        #: Whether they are the job's own checkpoints, which are retained and later replaced.
        self.own = bool(keys)
        path = RECOVERY_PATH.read(config)
        if not keys and path:
            keys = [path]
        self._waiting = set(keys)
        self.keys = tuple(keys)
        self._found: list[Completed] = []

    @property
    def done(self) -> bool:
        """Whether all manifests have been read or found unreadable."""
        return not self._waiting

    @property
    def unreadable(self) -> bool:
        """Whether there are checkpoints to start from, and none of them could be read."""
        return bool(self.keys) and self.done and not self._found

    def again(self) -> None:
        """Reads all of them again."""
        self._waiting = set(self.keys)

    def loaded(self, key: str, manifest: CheckpointManifest | None) -> bool:
        """One manifest was read (None: it is unreadable). Returns True if it was the last."""
        if key not in self._waiting:
            return False
        self._waiting.discard(key)
        if manifest is not None:
            self._found.append(Completed(manifest.checkpoint_id, key, manifest, manifest.kind))
        return not self._waiting

    @property
    def found(self) -> list[Completed]:
        """The manifests that were read, oldest first."""
        return sorted(self._found, key=lambda c: c.checkpoint_id)


def state_of(
    completed: Completed, graph: JobGraph, config: Mapping[str, str]
) -> dict[str, tuple[StateHandle, ...]]:
    """Vertex id → its handles. Raises SpecError if the snapshot holds state that no operator takes, unless
    the configuration allows to drop it, or the dispatcher has already compared the operators."""
    vertices = [(v.id, tuple(n.uid for n in v.operators)) for v in graph.vertices]
    handles, left = handles_by_vertex(completed.manifest, vertices)
    decided = bool(graph.matched_to) and graph.matched_to == RECOVERY_PATH.read(config)
    if left and not decided and not RECOVERY_IGNORE_UNCLAIMED.read(config):
        raise SpecError(
            "the snapshot holds state of operators that this job does not have",
            expected="an operator with the same uid for every part of the snapshot",
            got=", ".join(left),
            where=completed.manifest_key,
            remedy=f"restore the program it was taken from, or allow it to be dropped with {RECOVERY_IGNORE_UNCLAIMED.key} (-n)",
        )
    return handles
