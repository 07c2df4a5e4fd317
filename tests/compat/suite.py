"""PyFlink's own tests through Penstock's names.

``PENSTOCK_PYFLINK_TESTS=FOLDER python -m tests.compat.suite [table | other] [FILE …]`` runs them and writes the pass rate by
file to a page of ``docs/``. ``FOLDER`` has ``pyflink/datastream/tests``: ``flink-python`` of a checkout of ``COMMIT``. Jobs run on
the streaming engine in this process; what a test takes from Java has a stand-in or is counted as a test that needs Java.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import re
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
from tests.compat.suite_reasons import NEED_JAVA, REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobgraph import JobGraph
    from penstock.types.logical import Schema

VARIABLE = "PENSTOCK_PYFLINK_TESTS"
DOCS = Path(__file__).parents[2] / "docs"
#: Group of tests → its page, its name and its folders.
PAGES = {
    "datastream": (DOCS / "pyflink-tests.md", "DataStream API", ("datastream",)),
    "table": (DOCS / "pyflink-table-tests.md", "Table API", ("table",)),
    "other": (
        DOCS / "pyflink-other-tests.md",
        "common classes, connectors, formats and metrics",
        ("common", "datastream/connectors", "datastream/formats", "fn_execution", "fn_execution/metrics"),
    ),
}
#: All folders of tests.
FOLDERS = tuple(path for _, _, paths in PAGES.values() for path in paths)
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
    """One file's tests. ``failed``: (test, first line of its error); ``java``: tests that need Java, each with its reason;
    ``private``: tests that call what PyFlink keeps to itself."""

    file: str
    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    java: list[tuple[str, str]] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    skipped: int = 0

    @property
    def counted(self) -> int:
        return self.passed + len(self.failed)


#: A test that takes longer is ended. It may install a package with pip, on a busy machine.
_MOST_S = 120


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"the test has not ended after {_MOST_S} s")


#: What a test says that asks PyFlink's gateway, or looks into a Java object that a Python object wraps.
_JAVA_WORDS = re.compile(r"get_gateway\(|get_j_env_configuration|load_java_class|\._j_\w+")
#: Why a test needs Java that has reached a stand-in of the gateway.
ASKS = "asks"


def of_java(name: str, method: Any) -> str | None:
    """Why the failing test ``name`` needs Java; None if it does not."""
    judged = next((why for part, why in NEED_JAVA.items() if part in name), None)
    if judged is not None:
        return judged
    try:
        text = inspect.getsource(method)
    except (TypeError, OSError):
        return None
    return ASKS if _JAVA_WORDS.search(text) else None


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
                self.outcome.java.append((name, ASKS))
                return
            if isinstance(error, suite_stand_ins.NeedsPrivate):
                self.outcome.private.append(name)
                return
            told, error = told or error, error.__cause__ or error.__context__
        if why := of_java(
            f"{self.outcome.file}: {name}", getattr(test, getattr(test, "_testMethodName", ""), None)
        ):
            self.outcome.java.append((name, why))
            return
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
        if name == self._package or (
            name.startswith("pyflink.fn_execution") and self._package.startswith(name)
        ):
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        if parent != self._package:
            return None
        return importlib.util.spec_from_file_location(name, self._folder / f"{file}.py")


def run(folder: Path, group: str, names: list[str]) -> list[Outcome]:
    """The outcome of each file of the group's tests."""
    pyflink.install()
    suite_stand_ins.install()
    execution.submit = _submit  # type: ignore[assignment]
    suite_tables.install(sys.modules, _submit)
    packages = {f"pyflink.{path.replace('/', '.')}.tests": path for path in FOLDERS}
    for package, path in packages.items():
        sys.meta_path.insert(0, Files(package, folder / "pyflink" / path / "tests"))
    out = []
    for path in PAGES[group][2]:
        for file in sorted((folder / "pyflink" / path / "tests").glob("test_*.py")):
            if file.name not in _HELPERS and (not names or file.stem in names):
                out.append(_run_file(f"pyflink.{path.replace('/', '.')}.tests.{file.stem}"))
    return out


def _run_file(name: str) -> Outcome:
    outcome = Outcome(name.rpartition(".")[2])
    try:
        module = importlib.import_module(name)
    except suite_stand_ins.NeedsJava:
        outcome.java.append((outcome.file, ASKS))
    except suite_stand_ins.NeedsPrivate:
        outcome.private.append(outcome.file)
    except Exception as err:
        outcome.failed.append((outcome.file, f"{type(err).__name__}: {err}"[:160]))
    else:
        unittest.defaultTestLoader.loadTestsFromModule(module).run(_Result(outcome))
    return outcome


def taken_from(group: str) -> list[str]:
    """Lines of the page that name the tests."""
    command = "python -m tests.compat.suite" + ("" if group == "datastream" else f" {group}")
    return [
        f"Made by `{command}` from the tests of PyFlink's {PAGES[group][1]}, which are not part of Penstock. They are",
        f"those of Flink's commit `{COMMIT}`, in which PyFlink's version is `{VERSION}`:",
        "the last commit before the version became 2.4-SNAPSHOT.",
    ]


_TITLES = {"datastream": "", "table": " of tables", "other": " of common classes, connectors and formats"}


def page(group: str, outcomes: list[Outcome]) -> str:
    """The page of the docs."""
    passed, counted = sum(o.passed for o in outcomes), sum(o.counted for o in outcomes)
    lines = [
        "# PyFlink's own tests" + _TITLES[group],
        "",
        *taken_from(group),
        f"Of those that need no Java {passed} of {counted} pass ({passed / max(1, counted):.0%}). A test needs Java",
        "when it asks PyFlink's gateway for Java's classes, or reads a Java object that a Python object wraps (`x._j_table`), or",
        "when what it expects is made by Flink's Java program: these are judged one by one below. A test is private when it calls",
        "functions and classes that PyFlink keeps to itself; it counts neither way.",
        "A file that cannot be imported counts as one test, however many tests it has.",
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
            why = next(
                (why for part, why in REASONS.items() if part in f"{outcome.file}: {name}"), f"`{shown}`"
            )
            lines.append(f"| `{outcome.file}`: `{name}` | {why} |")
    judged = [(o.file, name, why) for o in outcomes for name, why in o.java if why != ASKS]
    if judged:
        lines += ["", "| needs Java | why |", "|---|---|"]
        lines += [f"| `{file}`: `{name}` | {why} |" for file, name, why in judged]
    return "\n".join(lines) + "\n"


def main() -> None:
    if VARIABLE not in os.environ:
        sys.exit(f"{VARIABLE} names no folder with pyflink/datastream/tests")
    group, names = "datastream", sys.argv[1:]
    if names[:1] and names[0] in PAGES:
        group, names = names[0], names[1:]
    outcomes = run(Path(os.environ[VARIABLE]), group, names)
    for o in outcomes:
        print(f"{o.file}: {o.passed} of {o.counted}, {len(o.java)} need Java, {len(o.private)} private")
        for name, error in o.failed:
            print("   ", name, error)
    if not names:
        PAGES[group][0].write_text(page(group, outcomes))


if __name__ == "__main__":
    main()
