"""Faults: what goes wrong in a simulated cluster, declared in ``faults/*.yaml``.

A file is a list of steps; each says what is done (``do``), to whom, between which seconds
(``at_s``), how often (``times``) and for how long (``for_s``). The seed draws the rest.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from penstock.errors import SpecError
from penstock.testing.simulation import BusFaults, FolderServer, NatsFaults, Process, StoreFaults

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

FOLDER = Path(__file__).with_name("faults")
#: In place of a job: what befell may have hurt the tasks of any.
ALL = "*"


@functools.cache
def load(name: str) -> list[Mapping[str, Any]]:
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        raise SpecError(f"no faults '{name}'", expected=", ".join(names()), got=name)
    steps: list[Mapping[str, Any]] = yaml.safe_load(path.read_text())
    for step in steps:
        if step["do"] not in ACTIONS:
            raise SpecError("unknown fault", expected=", ".join(ACTIONS), got=step["do"], where=str(path))
    return steps


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@dataclass
class Fault:
    """One occurrence of a step."""

    scenario: Scenario
    step: Mapping[str, Any]
    chance: random.Random

    @property
    def hurts_tasks(self) -> bool:
        """False for what befalls only those who command: tasks must run on. (A slot hurts one job.)"""
        step = self.step
        others = ("dispatcher", "jobmanager", "resourcemanager", "slot")
        return (
            step["do"] not in ("bus-down", "leases", "leases-down", "leases-wiped")
            and step.get("target") not in others
        )

    def draw(self, key: str, default: tuple[float, float]) -> float:
        low, high = self.step.get(key, default)
        return self.chance.uniform(low, high)

    def victim(self) -> Process | None:
        """A living process of the kind wanted: a role, ``slot`` or ``template``."""
        wanted = self.step["target"]
        world = self.scenario.world
        if wanted in ("slot", "template"):
            mark = "/" if wanted == "slot" else ":"
            found = [p for p in world.living("taskmanager") if mark in p.name]
        else:
            found = self.scenario.cluster.named(wanted)
        victim = self.chance.choice(found) if found else None
        if wanted == "slot" and victim is not None:
            self.scenario.hurt.add(self.scenario.watch.job_of(victim))
        return victim

    def later(self, call: Any) -> None:
        self.scenario.world.after(self.draw("for_s", (0.5, 3.0)), call)


def kill(fault: Fault) -> None:
    """One, or with ``all`` every process of the role."""
    if fault.step.get("all"):
        for process in fault.scenario.cluster.named(fault.step["target"]):
            fault.scenario.world.kill(process)
    elif (victim := fault.victim()) is not None:
        fault.scenario.world.kill(victim)


def kill_together(fault: Fault) -> None:
    """One of each of ``targets``, at the same moment. ``lost``: those of this role are gone with
    their host; others take their place, under other names."""
    cluster = fault.scenario.cluster
    found = [cluster.named(role) for role in fault.step["targets"]]
    for victim in [fault.chance.choice(living) for living in found if living]:
        if victim.name.startswith(fault.step.get("lost", "-")):
            cluster.lost_hosts.add(victim.name)
        fault.scenario.world.kill(victim)


def terminate(fault: Fault) -> None:
    if (victim := fault.victim()) is not None:
        fault.scenario.cluster.terminate(victim.name)


def pause(fault: Fault) -> None:
    """SIGSTOP and, after a while, SIGCONT. A task manager stops with or without its slots."""
    victim, world = fault.victim(), fault.scenario.world
    if victim is None:
        return
    stopped = [victim]
    if victim.children and fault.chance.random() < 0.5:
        stopped += victim.descendants()
    for process in stopped:
        world.pause(process)
    fault.later(lambda: [world.resume(process) for process in stopped])


def cut(fault: Fault) -> None:
    """One process reaches the bus, or the lease store, or both, no more."""
    victim, cluster = fault.victim(), fault.scenario.cluster
    if victim is None:
        return
    kinds = fault.step.get("of", ["bus", "leases"])
    kind = fault.chance.choice([*kinds, "all"])
    if kind in ("bus", "all"):
        cluster.bus.cut_off(victim, True)
    if kind in ("leases", "all"):
        cluster.leases.cut.add(victim.name)

    def heal() -> None:
        cluster.bus.cut_off(victim, False)
        cluster.leases.cut.discard(victim.name)

    fault.later(heal)


def bus(fault: Fault) -> None:
    server = fault.scenario.cluster.bus
    server.faults = BusFaults(**fault.step["faults"])

    def heal() -> None:
        server.faults = BusFaults()

    fault.later(heal)


def bus_down(fault: Fault) -> None:
    server = fault.scenario.cluster.bus
    server.set_down(True)
    fault.later(lambda: server.set_down(False))


def leases_down(fault: Fault) -> None:
    server = fault.scenario.cluster.leases
    server.set_down(True)
    fault.later(lambda: server.set_down(False))


def leases(fault: Fault) -> None:
    """Some answers of the lease store are lost, though it did what it was asked to."""
    server = fault.scenario.cluster.leases
    server.error = float(fault.step["error"])

    def heal() -> None:
        server.error = 0.0

    fault.later(heal)


def leases_wiped(fault: Fault) -> None:
    fault.scenario.cluster.leases.wipe()


def store(fault: Fault) -> None:
    server = fault.scenario.cluster.objects
    server.faults = StoreFaults(**fault.step["faults"])

    def heal() -> None:
        server.faults = StoreFaults()

    fault.later(heal)


def clock_jump(fault: Fault) -> None:
    """The wall clock of one process goes forward or back."""
    victim = fault.victim()
    if victim is None:
        return
    jump_ms = round(fault.draw("jump_s", (-3600, 3600)) * 1000)
    fault.scenario.world.trace(victim.name, "clock", f"{jump_ms:+d} ms")
    for process in (victim, *victim.descendants()):
        process.clock_offset_ms += jump_ms


def data_cut(fault: Fault) -> None:
    """A data connection between two slots breaks."""
    hosts, world = fault.scenario.hosts, fault.scenario.world
    connections = [s for s in hosts.connections if s.owner.alive and not s.closed and s.peer is not None]
    if connections:
        sock = fault.chance.choice(connections)
        world.trace(sock.owner.name, "data cut")
        sock.reset()


def data_stalled(fault: Fault) -> None:
    """Nothing passes on the data connections of a slot for a while."""
    hosts, world = fault.scenario.hosts, fault.scenario.world
    until_s = world.now_s + fault.draw("for_s", (0.5, 3.0))
    for sock in hosts.connections:
        if sock.peer is not None and sock.owner.alive:
            sock.stalled_until_s = sock.peer.stalled_until_s = until_s
    world.trace("network", "stalled", f"until {until_s:.3f}")


def outside(fault: Fault) -> None:
    """The system behind the sinks refuses some requests."""
    found = fault.scenario.outside
    found.fail = float(fault.step["fail"])

    def heal() -> None:
        found.fail = 0.0

    fault.later(heal)


def nats_cut(fault: Fault) -> None:
    """Connections of the connector to the NATS server break: one, or all."""
    found = fault.scenario.nats.connections
    if not found:
        return
    fault.scenario.world.trace("nats", "cut")
    for connection in list(found) if fault.chance.random() < 0.3 else [fault.chance.choice(found)]:
        connection.sock.reset()


def nats_stalled(fault: Fault) -> None:
    """What is on its way to the NATS server and back stays there for a while: it arrives though
    whoever sent it may be dead by then."""
    world = fault.scenario.world
    until_s = world.now_s + fault.draw("for_s", (0.5, 4.0))
    for connection in fault.scenario.nats.connections:
        for end in (connection.sock, connection.sock.peer):
            if end is not None:
                end.stalled_until_s = until_s
    world.trace("nats", "stalled", f"until {until_s:.3f}")


def nats_answers(fault: Fault) -> None:
    """The NATS server does what it is asked to, and some of its answers are lost."""
    server = fault.scenario.nats
    server.faults = NatsFaults(**fault.step["faults"])

    def heal() -> None:
        server.faults = NatsFaults()

    fault.later(heal)


def power_loss(fault: Fault) -> None:
    """Everything stops at once. The shared disk and the folder that is the object store lose
    what was not synced; of the local copies of snapshots, which never are, some hold zeros or
    end too early."""
    scenario, chance = fault.scenario, fault.chance
    for name, process in list(scenario.cluster.services.items()):
        if name != "nats-server":  # it is no part of the cluster
            scenario.world.kill(process)
    scenario.disk.power_fails()
    if isinstance(scenario.cluster.objects, FolderServer):
        scenario.cluster.objects.power_fails(chance)
    for path in sorted(p for p in scenario.hosts.folder.rglob("*~*") if p.is_file()):
        data = path.read_bytes()
        half = len(data) // 2
        path.write_bytes(
            chance.choice((data, data[:half], bytes(len(data)), data[:8] + bytes(half) + data[half + 8 :]))
        )


def rescale(fault: Fault) -> None:
    """The user stops the job with a savepoint and resumes it at another parallelism."""
    fault.chance.choice(fault.scenario.users).rescaling_wanted += 1


ACTIONS = {
    "kill": kill,
    "kill-together": kill_together,
    "terminate": terminate,
    "pause": pause,
    "cut": cut,
    "bus": bus,
    "bus-down": bus_down,
    "leases": leases,
    "leases-down": leases_down,
    "leases-wiped": leases_wiped,
    "store": store,
    "clock-jump": clock_jump,
    "data-cut": data_cut,
    "data-stalled": data_stalled,
    "outside": outside,
    "nats-cut": nats_cut,
    "nats-stalled": nats_stalled,
    "nats-answers": nats_answers,
    "power-loss": power_loss,
    "rescale": rescale,
}


def schedule(scenario: Scenario, names: list[str], chance: random.Random) -> None:
    """Every occurrence of every step, at its time."""
    world = scenario.world
    for name in names:
        for step in load(name):
            low, high = step.get("times", (1, 1))
            for _ in range(chance.randint(low, high)):
                fault = Fault(scenario, step, chance)
                at_s = chance.uniform(*step.get("at_s", (0.3, 4.5)))

                def occur(fault: Fault = fault) -> None:
                    if not scenario.over:
                        scenario.faults_done += 1
                        if fault.hurts_tasks:
                            scenario.hurt.add(ALL)
                        ACTIONS[fault.step["do"]](fault)

                world.at(at_s, occur)
