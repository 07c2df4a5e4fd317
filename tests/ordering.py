"""In which order the tests run, and which of them stay together in one worker.

What needs no server runs first, so that most mistakes show at once; then the units that take longest, so that
at the end no worker waits for another that has just begun one of them; then the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pytest

#: Packages of pure cores; the Makefile's ``quick`` runs them alone.
PURE = (
    "columnar",
    "formats",
    "functions",
    "jobgraph",
    "messages",
    "operators",
    "plan",
    "snapshots",
    "store",
    "types",
)

#: Units of half a minute and more on an otherwise idle machine, the longest first.
LONGEST = (
    "tests/e2e/test_main_job.py",
    "tests/e2e/test_spark.py",
    "spark",
    "tests/state/test_resident_memory.py",
    "tests/e2e/test_backfill.py",
    "tests/e2e/test_failures.py",
    "tests/e2e/test_spark_libraries.py",
    "tests/e2e/test_python_steps.py",
    "tests/e2e/test_bad_input.py",
    "tests/e2e/test_savepoints.py",
    "tests/e2e/test_restart_strategies.py",
    "tests/simulation/test_runs.py",
    "tests/e2e/test_spark_bad_input.py",
    "tests/sql/test_nexmark.py",
    "tests/cli/test_commands.py",
    "tests/services/taskmanager/test_spark.py",
    "tests/state/test_eviction.py",
    "golden-two",
    "golden-streaming",
    "golden-batch",
    "tests/services/common/test_processes.py",
    "tests/sql/test_random_queries.py",
    "tests/chaos/test_smoke.py",
    "golden-parallel",
    "tests/state/test_cold_tier.py",
    "tests/cli/test_watched_select.py",
)  # fmt: skip

_GOLDEN = "tests/golden/test_golden.py"


def unit_of(nodeid: str) -> str:
    """Tests of one unit run in one worker. All that share the Spark session are one unit: it takes seconds to
    start and minutes to warm up. The golden cases are one unit an engine; else a file is one."""
    file = nodeid.partition("::")[0]
    if file == _GOLDEN and nodeid.endswith("]"):
        engine = nodeid[:-1].rpartition("-")[2]
        return "spark" if engine == "spark" else f"golden-{engine}"
    return "spark" if file.startswith("tests/spark/") or file == "tests/golden/test_recorded.py" else file


def rank(nodeid: str) -> tuple[int, int]:
    """Tests of a smaller one run earlier."""
    unit = unit_of(nodeid)
    if unit in LONGEST:
        return 1, LONGEST.index(unit)
    return (0, 0) if unit.startswith(tuple(f"tests/{name}/" for name in PURE)) else (2, 0)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """pytest-xdist's ``--dist loadfile`` with these units in the place of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def in_order(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))
