"""Mutants: bugs that the simulation must find, declared in ``mutants/*.yaml``.

``python -m tests.simulation.mutants`` plants each in a copy of the sources and runs seeds
until one breaks; or, of what no seed can see (what is shown, a single actor's timer), the
tests that it names. A mutant that survives, or whose place in the sources is gone, fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from penstock.errors import SpecError

FOLDER = Path(__file__).with_name("mutants")
ROOT = Path(__file__).parents[2]
#: What a run imports from the repository.
COPIED = ("shared", "services", "tests/simulation")
SEEDS = 400


@dataclass(frozen=True)
class Mutant:
    """``old`` occurs once in ``file`` and becomes ``new``. ``workload``, ``faults``: where
    only some of them can show it. ``tests``: pytest's arguments, instead of seeds."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    workload: str | None = None
    faults: str | None = None
    tests: str | None = None

    def apply(self, root: Path) -> None:
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise SpecError(
                f"the mutant '{self.name}' does not fit the sources any more",
                expected="exactly one place that reads\n" + self.old,
                got=f"{text.count(self.old)} of them",
                where=self.file,
                remedy=f"correct the mutants/{self.name}.yaml that declares it",
            )
        path.write_text(text.replace(self.old, self.new))


def load(name: str) -> Mutant:
    tree = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    tree["old"], tree["new"] = tree["old"].rstrip("\n"), tree["new"].rstrip("\n")
    return Mutant(name=name, **tree)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def hunt(mutant: Mutant, seeds: int, first: int) -> tuple[int | str | None, str]:
    """(the seed, or test, that found it or None, what it said). A seed that breaks without the mutant
    as well has not found it."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        root = Path(folder)
        for part in COPIED:
            shutil.copytree(
                ROOT / part, root / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        if mutant.tests is not None:
            return _found_by_tests(mutant, root)
        mutant.apply(root)
        start = first
        while start < first + seeds:
            seed, said = _first_broken(mutant, root, first + seeds - start, start)
            if seed is None or _first_broken(mutant, ROOT, 1, seed)[0] is None:
                return seed, said
            print(f"{mutant.name}: seed {seed} is broken without it, too", file=sys.stderr)
            start = seed + 1
    return None, ""


def _found_by_tests(mutant: Mutant, root: Path) -> tuple[str | None, str]:
    """As ``hunt``: the test that fails with the mutant, and passes without it."""
    shutil.copytree(
        ROOT / "tests", root / "tests", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    for file in ("pyproject.toml",):
        shutil.copy(ROOT / file, root / file)
    assert mutant.tests is not None
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()]
    for planted in (False, True):
        if planted:
            mutant.apply(root)
        done = subprocess.run(
            command, cwd=root, env=_environment(root), capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1) or (done.returncode and not planted):
            raise SpecError(f"the tests of the mutant '{mutant.name}' do not run", got=done.stdout[-2_000:])
    found = re.search(r"^FAILED (\S+)(?: - (.*))?", done.stdout, re.MULTILINE)
    return (found[1], found[2] or "") if found else (None, "")


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'shared'}", "PYTHONHASHSEED": "0"}


def _first_broken(mutant: Mutant, root: Path, seeds: int, first: int) -> tuple[int | None, str]:
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--stop",
        "--seeds",
        str(seeds),
        "--from",
        str(first),
    ]
    command += ["--workload", mutant.workload] if mutant.workload else []
    command += ["--faults", mutant.faults] if mutant.faults else []
    done = subprocess.run(
        command, cwd=root, env=_environment(root), capture_output=True, text=True, check=False
    )
    found = re.search(r"^seed (\d+): ", done.stdout, re.MULTILINE)
    said = re.search(r"^  BROKEN: (.*)", done.stdout, re.MULTILINE)
    if found is None and done.returncode:
        raise SpecError(f"the mutant '{mutant.name}' does not run", got=done.stderr[-2_000:])
    return (int(found[1]), said[1] if said else "") if found else (None, "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"at most, for each (default {SEEDS})")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    survived = []
    for name in args.names or names():
        mutant, started = load(name), time.monotonic()
        seed, said = hunt(mutant, args.seeds, args.first)
        took_s = time.monotonic() - started
        if seed is None:
            survived.append(name)
            tried = mutant.tests or f"{args.seeds} seeds"
            print(f"{name:32} SURVIVED {tried} ({took_s:.0f} s): {mutant.breaks}", flush=True)
        else:
            by = f"seed {seed}" if isinstance(seed, int) else seed
            print(f"{name:32} found by {by} ({took_s:.0f} s): {said[:160]}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
