"""The simulation in the test suite: some seeds, and that a run is a function of its seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import faults, mutants, workloads
from tests.simulation.plan import plan

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "seeds"),
    [(1, 4), pytest.param(5, 4, marks=pytest.mark.long), pytest.param(9, 12, marks=pytest.mark.soak)],
)
def test_some_seeds_are_clean_and_give_the_same_digest_twice(first, seeds):
    done = simulate("--from", str(first), "--seeds", str(seeds), "--twice", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{seeds} seeds" in done.stdout
    assert "all clean" in done.stdout


def test_a_run_is_the_same_in_another_process():
    """Whatever the hashes of that process are: the command sees to it."""
    runs = [simulate("--seed", "7", hash_seed=seed) for seed in ("1", "2")]
    digests = [re.search(r"digest (\w+)", done.stdout) for done in runs]
    assert digests[0] is not None, runs[0].stdout + runs[0].stderr
    assert digests[1] is not None
    assert digests[0][1] == digests[1][1]


def test_what_is_broken_is_told_with_the_command_that_repeats_it():
    assert plan(12).command == (
        f"python -m tests.simulation --seed 12 --workload {plan(12).workload} "
        f"--faults {','.join(plan(12).faults)} -v"
    )
    assert plan(12) == plan(12)
    assert len({(plan(s).workload, plan(s).faults) for s in range(200)}) > 100


def test_declarations_are_whole():
    for name in workloads.names():
        declared = workloads.load(name)
        assert declared.sinks
        assert declared.graph(declared.parallelism).vertices
    for name in faults.names():
        assert faults.load(name)


@pytest.mark.parametrize("name", mutants.names())
def test_mutants_fit_the_sources(name):
    mutant = mutants.load(name)
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, (
        f"correct tests/simulation/mutants/{name}.yaml"
    )
