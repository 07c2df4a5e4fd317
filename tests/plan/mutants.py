"""Mutants of the planner and of the DataStream API: bugs that tests must find, declared in ``mutants/*.yaml`` of
each.

``python -m tests.plan.mutants`` plants each in a copy of the sources and runs the tests that it names
(all of them in one process, small and in memory). A mutant that survives, or whose place in the
sources is gone, fails.
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
from tests.simulation.mutants import Mutant

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests/plan/mutants", ROOT / "tests/api/mutants")
#: What the tests import and read.
COPIED = ("shared", "services", "tests")
#: pytest's exit codes: all passed, some failed.
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class PlannerMutant:
    """``tests``: pytest's arguments; they pass without the mutant."""

    mutant: Mutant
    tests: list[str]


def load(name: str) -> PlannerMutant:
    tree = yaml.safe_load(_files()[name].read_text())
    tests = [str(x) for x in tree.pop("tests")]
    tree["old"], tree["new"] = tree["old"].rstrip("\n"), tree["new"].rstrip("\n")
    return PlannerMutant(Mutant(name=name, **tree), tests)


def names() -> list[str]:
    return list(_files())


def _files() -> dict[str, Path]:
    """By the mutant's name, the planner's first."""
    return {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))}


def hunt(planted: PlannerMutant) -> str:
    """The line with which a test failed; empty when all passed."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutant-") as folder:
        root = Path(folder)
        for part in COPIED:
            shutil.copytree(
                ROOT / part, root / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "pyproject.toml", root)
        planted.mutant.apply(root)
        return _first_failure(planted, root)


def _first_failure(planted: PlannerMutant, root: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *planted.tests]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'shared'}"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (PASSED, FAILED):
        raise SpecError(
            f"the tests of the mutant '{planted.mutant.name}' do not run", got=done.stdout[-2_000:]
        )
    if done.returncode == PASSED:
        return ""
    said = re.findall(r"^E +(.*(?:Error|assert).*)", done.stdout, re.MULTILINE)
    return said[-1] if said else "a test failed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.plan.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    survived = []
    for name in parser.parse_args().names or names():
        planted, started = load(name), time.monotonic()
        said = hunt(planted)
        took_s = time.monotonic() - started
        if said:
            print(f"{name:32} found ({took_s:.0f} s): {said[:160]}", flush=True)
        else:
            survived.append(name)
            print(f"{name:32} SURVIVED ({took_s:.0f} s): {planted.mutant.breaks}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
