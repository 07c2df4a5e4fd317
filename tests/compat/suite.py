"""PyFlink's own tests of the DataStream API through Penstock's names.

``PENSTOCK_PYFLINK_TESTS=FOLDER python -m tests.compat.suite [FILE …]`` runs them and writes the pass rate by file to
``docs/pyflink-tests.md``. ``FOLDER`` has ``pyflink/datastream/tests``: ``flink-python`` of a checkout of ``COMMIT``. Jobs run on the
streaming engine in this process; what a test takes from Java has a stand-in or is counted as a test that needs Java.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import unittest
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.api import execution
from penstock.columnar.python_values import records
from penstock.compat import pyflink
from penstock.testing.harness import run_graph
from penstock.types import Batch
from tests.compat import suite_stand_ins, suite_tables
from tests.compat.suite_reasons import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobgraph import JobGraph
    from penstock.types.logical import Schema

VARIABLE = "PENSTOCK_PYFLINK_TESTS"
DOCS = Path(__file__).parents[2] / "docs"
#: Package of tests → its page and its name.
PAGES = {
    "datastream": (DOCS / "pyflink-tests.md", "DataStream API"),
    "table": (DOCS / "pyflink-table-tests.md", "Table API"),
}
#: Flink's commit that the tests are taken from: the last one before its version became 2.4-SNAPSHOT.
COMMIT = "096f031b9502337979c06f067c1289fe03173aaf"
#: PyFlink's version in that commit.
VERSION = "2.3.dev0"
#: Helpers, no tests.
_HELPERS = ("test_util.py",)


class LocalClient:
    """A job that has run in this process."""

    def __init__(self, graph: JobGraph) -> None:
        self._id = uuid.uuid4().hex
        folder = os.getcwd()
        try:
            self._result = run_graph(graph)
        finally:
            os.chdir(folder)  # the job's archives lie in the folder of its slot

    def get_job_id(self) -> str:
        return self._id

    def get_job_execution_result(self) -> execution.JobExecutionResult:
        return execution.JobExecutionResult(self._id, {"duration": 0})

    executed = get_job_execution_result

    def rows(self, schema: Schema) -> Iterator[Any]:
        from penstock.types import pickling
        from penstock.types.logical import RawType

        def loaded(type_: Any, value: Any) -> Any:
            return pickling.loads(value) if isinstance(type_, RawType) and value is not None else value

        rows = [tuple(map(loaded, schema.types, row)) for _, row in self._result.changelog]
        yield from records(Batch.of(schema, rows)) if rows else ()

    def batches(self, schema: Schema) -> Iterator[Batch]:
        rows = [row for _, row in self._result.changelog]
        if rows:
            kinds = np.array([kind for kind, _ in self._result.changelog], np.uint8)
            made = Batch.of(schema, rows)
            yield Batch(schema, made.columns, kinds=kinds, num_rows=len(rows))

    def get_job_status(self) -> str:
        return "FINISHED"

    def abandon(self) -> None:
        """It has ended already."""


def _submit(graph: JobGraph, config: Mapping[str, str]) -> LocalClient:
    return LocalClient(graph)


@dataclass
class Outcome:
    """One file's tests. ``failed``: (test, first line of its error); ``java``: tests that need Java; ``private``: tests
    that call what PyFlink keeps to itself."""

    file: str
    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    java: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    skipped: int = 0

    @property
    def counted(self) -> int:
        return self.passed + len(self.failed)


#: A test that takes longer is ended.
_MOST_S = 30


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"the test has not ended after {_MOST_S} s")


class _Result(unittest.TestResult):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(_MOST_S)

    def stopTest(self, test: Any) -> None:
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test: Any) -> None:
        self.outcome.passed += 1

    def addSkip(self, test: Any, reason: str) -> None:
        self.outcome.skipped += 1

    def addFailure(self, test: Any, err: Any) -> None:
        name = f"{type(test).__name__}.{getattr(test, '_testMethodName', test)}"
        error, told = err[1], None
        while error is not None:
            if isinstance(error, suite_stand_ins.NeedsJava):
                self.outcome.java.append(name)
                return
            if isinstance(error, suite_stand_ins.NeedsPrivate):
                self.outcome.private.append(name)
                return
            told, error = told or error, error.__cause__ or error.__context__
        lines = str(told).strip().splitlines() or [""]
        self.outcome.failed.append((name, f"{type(told).__name__}: {lines[0]}"[:160]))
        if os.environ.get("SUITE_TRACE"):
            import traceback

            traceback.print_exception(*err)

    addError = addFailure


class Files(importlib.abc.MetaPathFinder):
    """Lets PyFlink's tests import each other: modules of ``package``, which is ``folder``."""

    def __init__(self, package: str, folder: Path) -> None:
        self._package = package
        self._folder = folder

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        parent, _, file = name.rpartition(".")
        if name == self._package:
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        if parent != self._package:
            return None
        return importlib.util.spec_from_file_location(name, self._folder / f"{file}.py")


def run(folder: Path, package: str, names: list[str]) -> list[Outcome]:
    """The outcome of each file of tests of ``package``: ``datastream`` or ``table``."""
    pyflink.install()
    suite_stand_ins.install()
    execution.submit = _submit  # type: ignore[assignment]
    suite_tables.install(sys.modules, _submit)
    sys.meta_path.insert(0, Files(f"pyflink.{package}.tests", folder / "pyflink" / package / "tests"))
    out = []
    for file in sorted((folder / "pyflink" / package / "tests").glob("test_*.py")):
        if file.name in _HELPERS or (names and file.stem not in names):
            continue
        outcome = Outcome(file.stem)
        out.append(outcome)
        try:
            module = importlib.import_module(f"pyflink.{package}.tests.{file.stem}")
        except suite_stand_ins.NeedsJava:
            outcome.java.append(file.stem)
            continue
        except suite_stand_ins.NeedsPrivate:
            outcome.private.append(file.stem)
            continue
        except Exception as err:
            outcome.failed.append((file.stem, f"{type(err).__name__}: {err}"[:160]))
            continue
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        suite.run(_Result(outcome))
    return out


def taken_from(package: str) -> list[str]:
    """Lines of the page that name the tests."""
    command = "python -m tests.compat.suite" + (" table" if package == "table" else "")
    return [
        f"Made by `{command}` from the tests of PyFlink's {PAGES[package][1]}, which are not part of Penstock. They are",
        f"those of Flink's commit `{COMMIT}`, in which PyFlink's version is `{VERSION}`:",
        "the last commit before the version became 2.4-SNAPSHOT.",
    ]


_UNREAD = ("A file that cannot be imported counts as one test that fails, however many tests it has.",)


def page(package: str, outcomes: list[Outcome]) -> str:
    """The page of the docs."""
    passed, counted = sum(o.passed for o in outcomes), sum(o.counted for o in outcomes)
    lines = [
        "# PyFlink's own tests" + (" of tables" if package == "table" else ""),
        "",
        *taken_from(package),
        f"Of those that need no Java {passed} of {counted} pass ({passed / max(1, counted):.0%}). A test needs Java",
        "when it asks PyFlink's gateway for Java's classes or reads a Java object's fields. A test is private when it calls",
        "functions and classes that PyFlink keeps to itself; it counts neither way.",
        *(_UNREAD if package == "table" else ()),
        "",
        "| file | pass | of | need Java | private | skipped by PyFlink |",
        "|---|---|---|---|---|---|",
        *(
            f"| `{o.file}` | {o.passed} | {o.counted} | {len(o.java)} | {len(o.private)} | {o.skipped} |"
            for o in outcomes
        ),
        "",
        "| fails | why |",
        "|---|---|",
    ]
    for outcome in outcomes:
        for name, error in outcome.failed:
            shown = error.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
            why = next((why for pattern, why in REASONS.items() if pattern in name), f"`{shown}`")
            lines.append(f"| `{outcome.file}`: `{name}` | {why} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    if VARIABLE not in os.environ:
        sys.exit(f"{VARIABLE} names no folder with pyflink/datastream/tests")
    package, names = "datastream", sys.argv[1:]
    if names[:1] == ["table"]:
        package, names = "table", names[1:]
    outcomes = run(Path(os.environ[VARIABLE]), package, names)
    for outcome in outcomes:
        print(
            f"{outcome.file}: {outcome.passed} of {outcome.counted}, {len(outcome.java)} need Java, {len(outcome.private)} private"
        )
        for name, error in outcome.failed:
            print("   ", name, error)
    if not names:
        PAGES[package][0].write_text(page(package, outcomes))


if __name__ == "__main__":
    main()
