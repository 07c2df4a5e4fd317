"""What a seed stands for: a workload and the faults that befall it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation import workloads


@dataclass(frozen=True)
class Plan:
    seed: int
    workload: str
    faults: tuple[str, ...]

    @property
    def command(self) -> str:
        """Repeats exactly this, with its trace."""
        chosen = ",".join(self.faults)
        return (
            f"python -m tests.simulation --seed {self.seed} --workload {self.workload} --faults {chosen} -v"
        )


def plan(seed: int, workload: str | None = None, fault_names: tuple[str, ...] | None = None) -> Plan:
    """By the seed alone, as far as it is not said."""
    chance = random.Random(f"plan {seed}")
    name = workload or chance.choice(workloads.drawn())
    n = chance.choice((1, 1, 2, 2, 3))
    chosen = tuple(chance.sample(workloads.common_faults(), n))
    if chance.random() < 2 / 3:
        chosen += tuple(workloads.load(name).faults)
    return Plan(seed, name, chosen if fault_names is None else fault_names)
