"""The tables of ``semantics.py`` and ``semantics_windows.py`` on the streaming engine, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api import semantics, semantics_windows
from tests.api.semantics import MODES, Case, environment

CASES = [*semantics.CASES, *semantics_windows.CASES]

RUNS = [(case, mode) for case in CASES for mode in MODES if case.expected(mode) is not None]


def in_soak(case: Case, mode: str | None) -> bool:
    """No mode is STREAMING, and AUTOMATIC is BATCH where all sources are bounded: a fourth of the programs shows
    each with the tests, the others in ``make soak``."""
    return mode in (None, "AUTOMATIC") and CASES.index(case) % 4 != MODES.index(mode)


@pytest.mark.parametrize(
    ("case", "mode"),
    [
        pytest.param(c, m, id=f"{c.name}, {m}", marks=[pytest.mark.soak] if in_soak(c, m) else [])
        for c, m in RUNS
    ],
)
def test_the_rows_are_flinks(collect: Any, case: Case, mode: str | None) -> None:
    got = collect(case.program(environment(mode)))
    assert sorted(map(repr, got)) == case.expected(mode)
