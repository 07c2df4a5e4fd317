"""The mutants of the planner and of the DataStream API still fit the sources; ``make mutants`` runs them."""

from __future__ import annotations

import pytest

from tests.plan import mutants


@pytest.mark.parametrize("name", mutants.names())
def test_mutants_fit_the_sources(name: str) -> None:
    mutant = mutants.load(name).mutant
    text = (mutants.ROOT / mutant.file).read_text()
    assert text.count(mutant.old) == 1, f"correct mutants/{name}.yaml of tests/plan or tests/api"
    assert mutant.new != mutant.old


def test_there_are_at_least_ten() -> None:
    assert len(mutants.names()) >= 10
