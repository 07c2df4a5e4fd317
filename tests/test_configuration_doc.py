from pathlib import Path

from penstock.config import markdown

DOC = Path(__file__).parents[1] / "docs" / "configuration.md"


def test_the_page_is_what_the_code_says() -> None:
    assert DOC.read_text() == markdown(), "run: python -m penstock.config > docs/configuration.md"
