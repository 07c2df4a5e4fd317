"""The table of ``semantics.py`` on the streaming engine, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.semantics import CASES, MODES, Case, environment

RUNS = [(case, mode) for case in CASES for mode in MODES if case.expected(mode) is not None]


@pytest.mark.parametrize(("case", "mode"), RUNS, ids=[f"{case.name}, {mode}" for case, mode in RUNS])
def test_the_rows_are_flinks(collect: Any, case: Case, mode: str | None) -> None:
    got = collect(case.program(environment(mode)))
    assert sorted(map(repr, got)) == case.expected(mode)
