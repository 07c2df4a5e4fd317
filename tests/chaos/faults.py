"""What can go wrong, and what the job must then do."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.chaos.cluster import ChaosCluster

#: ``restart``: tasks begin anew from a completed checkpoint. ``stay``: none does.
Must = Literal["restart", "stay", "either"]
#: Longer and shorter than leases (2 s) and the heartbeat's timeout (5 s).
SHORT, LONG = (0.2, 1.5), (6.5, 9.0)
AROUND = (0.5, 6.0)
MINUTE = (60.0, 60.0)


@dataclass(frozen=True)
class Kind:
    """``targets`` are names that ``begin`` and ``end`` take. ``lasts_s``: between them;
    ``end`` None: what ends at once. ``hosts``: only with hosts of their own. ``flows``: rows
    must reach sinks all the while."""

    must: Must
    targets: Callable[[ChaosCluster], list[str]]
    begin: Callable[[ChaosCluster, str], None]
    end: Callable[[ChaosCluster, str], None] | None = None
    lasts_s: tuple[float, float] = (0.0, 0.0)
    weight: float = 1.0
    hosts: bool = False
    flows: bool = False


def _role(role: str) -> Callable[[ChaosCluster], list[str]]:
    return lambda cluster: cluster.names(role)


def _slots(cluster: ChaosCluster) -> list[str]:
    return [str(pid) for name in cluster.names("taskmanager") for pid in cluster.slot_pids(name)]


def _templates(cluster: ChaosCluster) -> list[str]:
    return [str(pid) for name in cluster.names("taskmanager") for pid in cluster.template_pids(name)]


def _on_host(names: Callable[[ChaosCluster], list[str]]) -> Callable[[ChaosCluster], list[str]]:
    return lambda cluster: [name for name in names(cluster) if cluster.host_of(name)]


def _kill(cluster: ChaosCluster, name: str) -> None:
    cluster.signal(name, signal.SIGKILL)


def _kill_all(cluster: ChaosCluster, role: str) -> None:
    """Of a role, or of all: the power fails."""
    for child in cluster.children:
        if role in ("cluster", child.name.rsplit("-", 1)[0]):
            cluster.signal(child.name, signal.SIGKILL)


def _stop(cluster: ChaosCluster, name: str) -> None:
    cluster.signal(name, signal.SIGSTOP)


def _continue(cluster: ChaosCluster, name: str) -> None:
    cluster.signal(name, signal.SIGCONT)


def _cut(direction: str) -> Callable[[ChaosCluster, str], None]:
    def cut(cluster: ChaosCluster, name: str) -> None:
        host = cluster.host_of(name)
        assert host is not None
        host.cut(direction)

    return cut


def _mend(cluster: ChaosCluster, name: str) -> None:
    host = cluster.host_of(name)
    assert host is not None
    host.mend()


def _fill(cluster: ChaosCluster, name: str) -> None:
    with (cluster.disk_of(name) / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue  # no more of this size fits: that is the fault


def _empty(cluster: ChaosCluster, name: str) -> None:
    (cluster.disk_of(name) / "filler").unlink(missing_ok=True)


def _trouble(mode: str, share: float) -> Callable[[ChaosCluster, str], None]:
    def begin(cluster: ChaosCluster, name: str) -> None:
        cluster.store.trouble = (mode, share)

    return begin


def _no_trouble(cluster: ChaosCluster, name: str) -> None:
    cluster.store.trouble = None


def _store(cluster: ChaosCluster) -> list[str]:
    return ["object store"]


MASTERS = ("jobmanager", "resourcemanager", "dispatcher")


def _members(group: str, cluster: ChaosCluster) -> list[str]:
    roles = MASTERS if group == "masters" else (group,)
    return [name for role in roles for name in cluster.names(role)]


def _down(cluster: ChaosCluster, group: str) -> None:
    for name in _members(group, cluster):
        cluster.take_down(name)


def _up(cluster: ChaosCluster, group: str) -> None:
    for name in _members(group, cluster):
        cluster.bring_back(name)


def _away(group: str) -> Kind:
    return Kind("stay", lambda cluster: [group], _down, _up, MINUTE, weight=0.0, flows=True)


def _working(cluster: ChaosCluster) -> list[str]:
    return cluster.working()


def _vanishes(role: str) -> Kind:
    """With its name: looking it up takes longer than anybody waits, and fails."""

    def begin(cluster: ChaosCluster, name: str) -> None:
        cluster.forget_name(name)

    def end(cluster: ChaosCluster, name: str) -> None:
        cluster.remember_name(name)

    return Kind("stay", _role(role), begin, end, LONG, hosts=True)


def _paused(must: Must, targets: Callable[[ChaosCluster], list[str]], lasts_s: tuple[float, float]) -> Kind:
    return Kind(must, targets, _stop, _continue, lasts_s)


KINDS: dict[str, Kind] = {
    "kill-taskmanager": Kind("restart", _working, _kill, weight=3.0),
    "kill-slot": Kind("restart", _slots, _kill, weight=3.0),
    "kill-template": Kind("restart", _templates, _kill),
    "kill-all-taskmanagers": Kind("restart", lambda cluster: ["taskmanager"], _kill_all),
    "kill-cluster": Kind("restart", lambda cluster: ["cluster"], _kill_all, weight=0.5),
    "kill-jobmanager": Kind("stay", _role("jobmanager"), _kill, weight=2.0),
    "kill-dispatcher": Kind("stay", _role("dispatcher"), _kill),
    "kill-resourcemanager": Kind("stay", _role("resourcemanager"), _kill),
    "kill-nats": Kind("stay", _role("nats"), _kill),
    "kill-valkey": Kind("stay", _role("valkey"), _kill),
    "wipe-valkey": Kind("stay", _role("valkey"), lambda cluster, name: cluster.wipe_leases()),
    "pause-taskmanager": _paused("either", _working, SHORT),
    "pause-taskmanager-long": _paused("either", _working, LONG),
    "pause-slot": _paused("either", _slots, SHORT),
    "pause-slot-long": _paused("either", _slots, LONG),
    "pause-jobmanager": _paused("stay", _role("jobmanager"), SHORT),
    "pause-jobmanager-long": _paused("stay", _role("jobmanager"), LONG),
    "pause-dispatcher": _paused("stay", _role("dispatcher"), AROUND),
    "pause-resourcemanager": _paused("stay", _role("resourcemanager"), SHORT),
    "pause-resourcemanager-long": _paused("stay", _role("resourcemanager"), LONG),
    "pause-nats": _paused("stay", _role("nats"), AROUND),
    "pause-valkey": _paused("stay", _role("valkey"), AROUND),
    "cut-taskmanager": Kind("either", _on_host(_working), _cut("both"), _mend, AROUND, hosts=True),
    "cut-taskmanager-long": Kind("either", _on_host(_working), _cut("both"), _mend, LONG, hosts=True),
    "cut-taskmanager-in": Kind("either", _on_host(_working), _cut("in"), _mend, AROUND, hosts=True),
    "cut-taskmanager-out": Kind("either", _on_host(_working), _cut("out"), _mend, AROUND, hosts=True),
    "cut-jobmanager": Kind("stay", _on_host(_role("jobmanager")), _cut("both"), _mend, AROUND, hosts=True),
    "cut-resourcemanager": Kind(
        "stay", _on_host(_role("resourcemanager")), _cut("both"), _mend, AROUND, hosts=True
    ),
    "full-disk": Kind("either", _on_host(_working), _fill, _empty, (2.0, 6.0), weight=2.0, hosts=True),
    "store-refuses": Kind("either", _store, _trouble("refuse", 0.5), _no_trouble, AROUND),
    "store-errs-after": Kind("either", _store, _trouble("after", 0.3), _no_trouble, AROUND),
    "store-away": Kind("either", _store, _trouble("refuse", 1.0), _no_trouble, (2.0, 9.0)),
    "store-slow": Kind("either", _store, _trouble("slow", 0.5), _no_trouble, AROUND),
    "store-cuts": Kind("either", _store, _trouble("cut", 0.4), _no_trouble, AROUND),
    "vanish-nats": _vanishes("nats"),
    "vanish-valkey": _vanishes("valkey"),
    "away-nats": _away("nats"),
    "away-valkey": _away("valkey"),
    "away-masters": _away("masters"),
}
