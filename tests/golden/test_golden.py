"""Every golden case (``case.py`` says what one is) on every engine: the same rows.

PENSTOCK_UPDATE_GOLDEN=1 writes the rows of the streaming engine into the case files: read what
it wrote, and run again for DuckDB and the others to agree.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden import engines
from tests.golden.case import CASES, Case, cases
from tests.golden.values import arranged, difference

#: Engine → its rows of a case, in a folder for files, with a function that gives the Spark session.
Run = Callable[[Case, Path, Callable[[], Any]], list[list[Any]]]
ENGINES: dict[str, Run] = {
    "streaming": lambda case, folder, _: engines.streaming(case, folder, 1, case.modes[0]),
    "two": lambda case, folder, _: engines.streaming(case, folder, 2, case.modes[0]),
    "parallel": lambda case, folder, _: engines.streaming(case, folder, 3, case.modes[0]),
    "batch": lambda case, folder, _: engines.streaming(case, folder, 2, case.modes[-1]),
    "spark": lambda case, folder, spark: engines.on_spark(case, folder, spark()),
    "duckdb": lambda case, folder, _: engines.by_duckdb(case),
}
ENOUGH = 120


def of_engine(engine: str) -> list[str]:
    """Cases for it: DuckDB where it is the reference; once more in batch mode where the first two
    ran in the other."""
    asked = {
        "duckdb": lambda case: case.reference == "duckdb",
        "batch": lambda case: len(case.modes) > 1,
    }.get(engine, lambda _: True)
    return [name for name, case in cases().items() if asked(case)]


def marks(engine: str, name: str) -> list[pytest.MarkDecorator]:
    """At parallelism 2 and by DuckDB every case runs with the tests; in batch mode the first of each folder and every other
    does, on Spark, which is twenty times dearer, the first and every fourth, the rest in ``make test-long``: what each
    operator does there is proved by its kit (``tests/plan/outside``). At parallelism 1 every other case and at 3 every
    fourth runs there too, the others in ``make soak``."""
    every = {"streaming": 2, "parallel": 4}.get(engine, 1)
    if zlib.crc32(name.encode()) % every != 0:
        return [pytest.mark.soak]
    folder = name.rpartition("/")[0]
    place = [other for other in sorted(cases()) if other.rpartition("/")[0] == folder].index(name)
    repeats = every > 1 or place % {"batch": 2, "spark": 4}.get(engine, 1) != 0
    return [pytest.mark.long] if repeats else []


@pytest.mark.parametrize(
    ("engine", "name"),
    [pytest.param(e, n, id=f"{n}-{e}", marks=marks(e, n)) for e in ENGINES for n in of_engine(e)],
)
def test_same_rows(engine: str, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case = cases()[name]
    rows = ENGINES[engine](case, tmp_path, lambda: request.getfixturevalue("quick_spark"))
    if os.environ.get("PENSTOCK_UPDATE_GOLDEN") and engine == "streaming":
        record(case, rows)
        return
    wrong = difference(rows, case.expected(), ordered=case.ordered, kinds=engine != "duckdb")
    reason = case.exceptions.get(engine)
    if reason is None:
        assert not wrong, wrong
    else:
        assert wrong, f"listed as an exception ({reason}), yet its rows are the same"


def record(case: Case, rows: list[list[Any]]) -> None:
    path = CASES / f"{case.name}.yaml"
    kept = path.read_text().split("\nrows: |\n")[0]
    lines = [json.dumps(row, ensure_ascii=False) for row in arranged(rows, ordered=case.ordered)]
    path.write_text(f"{kept}\nrows: |\n" + "".join(f"  {line}\n" for line in lines))


def test_there_are_cases_and_each_says_something() -> None:
    assert len(cases()) >= ENOUGH
    for case in cases().values():
        assert all(reason and engine in ENGINES for engine, reason in case.exceptions.items()), case.name
