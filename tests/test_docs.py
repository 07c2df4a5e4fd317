"""What the pages show is run: SQL is planned, programs are planned, paths are there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.api.planner import plan_spec
from penstock.messages.cluster import JobSpec
from penstock.sql.functions import register_module
from penstock.sql.session import SqlSession

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def module_folder(tmp_path: Path) -> Iterator[Path]:
    before, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name == "my_functions":
            del sys.modules[name]


def test_every_sql_block_is_planned(module_folder: Path) -> None:
    session = SqlSession()
    module = module_folder / "my_functions.py"
    module.write_text(blocks("sql.md", "python")[0])
    register_module(session.catalog.functions, module)
    scripts = blocks("sql.md", "sql")
    assert len(scripts) >= 7
    planned = [result for script in scripts for result in session.run_script(script)]
    assert sum(result.kind == "job" for result in planned) >= 15


@pytest.mark.parametrize("page", ["datastream.md"])
def test_every_program_is_planned(page: str) -> None:
    programs = [text for text in blocks(page, "python") if "execute(" in text]
    assert programs
    for text in programs:
        assert plan_spec(JobSpec(python=text)).vertices


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
