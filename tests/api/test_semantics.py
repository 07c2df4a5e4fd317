"""The table of ``semantics.py`` on the streaming engine, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.semantics import CASES, MODES, Case, environment


@pytest.mark.parametrize("mode", MODES[:2], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rows_are_flinks(collect: Any, case: Case, mode: str | None) -> None:
    got = collect(case.program(environment(mode)))
    assert sorted(map(repr, got)) == case.expected(mode)
