"""The page of differences is what the lists say."""

from __future__ import annotations

from pathlib import Path

from tests.golden.differences import page

DOC = Path(__file__).parents[2] / "docs" / "engine-differences.md"


def test_the_page_is_what_the_lists_say() -> None:
    assert DOC.read_text() == page(), "run: python -m tests.golden.differences > docs/engine-differences.md"
