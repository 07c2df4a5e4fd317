"""SIGKILLs of a cluster's processes, and of the server beside it, at random moments."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.e2e.support import slot_pid

if TYPE_CHECKING:
    from penstock.api.client import ClusterClient
    from penstock.embedded import EmbeddedCluster

#: What ``make test`` kills: the others take seconds to be noticed.
FEW = ("slot", "server", "slot")
#: What ``make soak`` kills. The cluster needs two task managers and two job managers.
ALL = ("slot", "task manager", "job manager", "server")


def cluster_for(make_cluster: Callable[..., EmbeddedCluster], kinds: tuple[str, ...]) -> EmbeddedCluster:
    """A cluster in which the processes of ``kinds`` may die, with room for a job of parallelism 2."""
    return make_cluster(taskmanagers=2, slots=1, jobmanagers=2 if "job manager" in kinds else 1)


class Faults:
    """Faults of ``kinds``, each as often as the others, in random order. ``server``: ends the server and starts it again.
    ``done``: how many of each there were."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        client: ClusterClient,
        server: Callable[[], Any],
        kinds: tuple[str, ...],
        chance: random.Random,
    ) -> None:
        self._cluster, self._client, self._server = cluster, client, server
        self._kinds, self._chance = kinds, chance
        self._next: list[str] = []
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        """One fault."""
        if not self._next:
            self._next = self._chance.sample(self._kinds, len(self._kinds))
        kind = self._next.pop()
        match kind:
            case "server":
                self._server()
            case "slot":
                self._kill(slot_pid(self._client))
            case "task manager" | "job manager":
                name = f"{kind.replace(' ', '')}-{self._chance.randint(0, 1)}"
                self._kill(self._cluster.child(name).pid)
            case _:
                raise AssertionError(f"no such fault: {kind}")
        self.done[kind] += 1

    @staticmethod
    def _kill(pid: int | None) -> None:
        # A process that ended meanwhile, by the fault before, is one that this fault need not end.
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
