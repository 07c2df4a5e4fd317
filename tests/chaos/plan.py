"""Which faults a seed means: pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from tests.chaos.faults import KINDS

#: Of state in memory: low enough that q18 keeps rows on the disk.
LIMITS = {"q18": "1 mb"}


@dataclass(frozen=True)
class Fault:
    """``choice`` in [0, 1) picks one of the targets there are. ``pause_s``: before it.
    ``doubled``: thrown on top of the one before, not after the job has recovered from it."""

    number: int
    kind: str
    choice: float
    pause_s: float
    lasts_s: float
    in_checkpoint: bool
    doubled: bool


@dataclass(frozen=True)
class Plan:
    """``sink``: where files go, ``folder`` or ``store``."""

    config: dict[str, str]
    sink: str
    faults: list[Fault]


def plan(seed: int, workload: str, count: int, kinds: Collection[str]) -> Plan:
    """The same for the same arguments. Kinds of weight 0 come only when they alone are asked
    for, one after the other."""
    random = Random(f"{seed} {workload}")
    config = {
        "execution.engine": "streaming",
        "parallelism.default": "4",
        "execution.checkpointing.interval": random.choice(("400 ms", "700 ms", "1 s")),
        "execution.checkpointing.unaligned.enabled": random.choice(("false", "true")),
        "execution.checkpointing.tolerable-failed-checkpoints": random.choice(("0", "3", "100")),
        "execution.checkpointing.timeout": "60 s",
        "state.backend.local-recovery": random.choice(("true", "false")),
        "state.backend.type": random.choice(("hashmap", "leveldb")),
        "state.backend.memory.per-slot": random.choice(("0", LIMITS.get(workload, "8 mb"))),
        "jobmanager.execution.failover-strategy": random.choice(("region", "full")),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": random.choice(("0 ms", "100 ms", "500 ms")),
        "table.exec.source.idle-timeout": "0 ms",
    }
    sink = random.choice(("folder", "store"))
    if "full-disk" in kinds:  # who writes nothing to the disk does not notice
        config["state.backend.local-recovery"] = "true"
    names = sorted(kinds)
    weights = [KINDS[name].weight for name in names]
    in_turn = not any(weights)
    faults = []
    for number in range(1, count + 1):
        name = names[(number - 1) % len(names)] if in_turn else random.choices(names, weights)[0]
        faults.append(
            Fault(
                number,
                name,
                random.random(),
                random.uniform(0.1, 2.0),
                random.uniform(*KINDS[name].lasts_s),
                random.random() < 0.3,
                number > 1 and not in_turn and random.random() < 0.15,
            )
        )
    return Plan(config, sink, faults)
