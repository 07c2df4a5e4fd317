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
    # They have no input, or no output: the kits of connectors drive sources and sinks.
    "EnumeratorSpec": "tests/connectors",
    "SourceSpec": "tests/connectors",
    "CollectionSourceSpec": "tests/api/test_datastream.py",
    "FunctionSourceSpec": "tests/api/test_function_sources.py",
    "SparkQuerySpec": "tests/spark/test_backfill.py",
    "SinkSpec": "tests/connectors",
    # Which rows it drops depends on the batches: it may drop any that cannot be in the result of the join behind it.
    "WindowMaximumSpec": "tests/operators/test_window_maximum.py",
}


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Spec → the kits that drive its operator."""
    found: dict[str, list[str]] = {}
    for kit in KITS:
        made = kit()
        made.folder = tmp_path_factory.mktemp("kit")
        spec = type(made._alone().spec.own()).__name__
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
