"""The names that the pages give are spelt as in the code: modules, what they define, files and folders."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import penstock.api

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING", "SECURITY")),
]
#: Where a path in a page may begin.
STARTS = (ROOT, ROOT / "shared", ROOT / "shared" / "penstock", ROOT / "docs")
#: Names that are not Python's: subjects of the bus, files, metadata of Parquet fields, groups of entry points.
NOT_PYTHON = re.compile(r"penstock\.(jobs\.(submit|status)|yaml|base|type|stores|state_backends)$")


def quoted(page: Path) -> set[str]:
    """What stands in backticks outside of blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


def exists(name: str) -> bool:
    """A module, or something that one defines."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_names_exist(page: Path) -> None:
    names = {q for q in quoted(page) if re.fullmatch(r"penstock(_services)?(\.\w+)+", q)}
    assert [n for n in sorted(names) if not exists(n) and not NOT_PYTHON.match(n)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_exist(page: Path) -> None:
    paths = {q.rstrip("/") for q in quoted(page) if re.fullmatch(r"[\w./-]+/[\w.-]*(\.py|\.md|\.yaml)", q)}
    assert [p for p in sorted(paths) if not any((start / p).exists() for start in STARTS)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_methods_of_the_api_exist(page: Path) -> None:
    """``DataStream.key_by`` and the like."""
    unknown = []
    for name in quoted(page):
        match = re.match(r"(\w+)\.(\w+)(\(|$)", name)
        if (
            match
            and match[1] in penstock.api.__all__
            and not hasattr(getattr(penstock.api, match[1]), match[2])
        ):
            unknown.append(name)
    assert unknown == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent == ROOT], ids=lambda page: page.name)
def test_links_of_the_pages_at_the_top_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    assert [x for x in links if "://" not in x and not (page.parent / x).exists()] == []
