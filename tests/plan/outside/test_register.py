"""Every registered operator has cases for the conformance kit, or a named place that tests it.

An operator that is registered with neither fails here by its name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.operators.factory import registered_specs
from penstock.testing.operators import OperatorConformance
from tests.plan.outside import (
    test_built_in,
    test_built_in_given,
    test_built_in_rows,
    test_built_in_windows,
    test_conformance,
)

ROOT = Path(__file__).parents[3]
KITS = [
    kit
    for module in (
        test_built_in,
        test_built_in_given,
        test_built_in_rows,
        test_built_in_windows,
        test_conformance,
    )
    for name, kit in vars(module).items()
    if name.startswith("Test") and isinstance(kit, type) and issubclass(kit, OperatorConformance)
]
#: Spec → the tests that take the place of the kit, which gives rows to one operator that has inputs and whose plan
#: is a node over them.
ELSEWHERE = {
    # They have no input, or no output.
    "EnumeratorSpec": "tests/connectors",
    "SourceSpec": "tests/connectors",
    "CollectionSourceSpec": "tests/api/test_datastream.py",
    "SparkQuerySpec": "tests/spark/test_backfill.py",
    "SinkSpec": "tests/connectors",
    # The planner puts them between a table and the operator that the kit drives.
    "AssignWatermarksSpec": "tests/runtime/test_task.py",
    "MaterializeSpec": "tests/operators/test_changelog_operators.py",
    "RecordTimeSpec": "tests/api/test_datastream.py",
    "RowKindSpec": "tests/table/test_stream_environment.py",
    "WindowMaximumSpec": "tests/operators/test_window_maximum.py",
    # They await an answer from outside of the engine.
    "AsyncCalcSpec": "tests/sql/test_python_functions.py",
    "AsyncWaitSpec": "tests/api/test_async_data_stream.py",
    "LookupJoinSpec": "tests/operators/test_lookup_join.py",
    # They run functions of a program's own, out of the job's function table.
    "FunctionSourceSpec": "tests/api/test_function_sources.py",
    "PythonSpec": "tests/operators/test_python.py",
    "KeyedProcessSpec": "tests/operators/test_keyed_process.py",
    "KeyedWindowSpec": "tests/operators/test_keyed_window.py",
}


@pytest.fixture(scope="module")
def driven() -> dict[str, list[str]]:
    """Spec → the kits that drive its operator."""
    found: dict[str, list[str]] = {}
    for kit in KITS:
        spec = type(kit()._alone().spec.own()).__name__
        found.setdefault(spec, []).append(kit.__name__)
    return found


@pytest.mark.parametrize("spec", registered_specs())
def test_a_registered_operator_has_cases(spec: str, driven: dict[str, list[str]]) -> None:
    assert (spec in driven) != (spec in ELSEWHERE), (
        f"the operator of {spec} has {driven.get(spec, 'no kit')} and is tested in {ELSEWHERE.get(spec, 'no other place')}: "
        "give it a class with cases in tests/plan/outside, or say here which tests take its place"
    )
    if spec in ELSEWHERE:
        assert (ROOT / ELSEWHERE[spec]).exists()
