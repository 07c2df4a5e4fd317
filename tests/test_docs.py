"""What the pages show is run: SQL is planned, programs are planned, paths are there."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock.api
from penstock.api.planner import plan_spec
from penstock.cli.page import markdown
from penstock.connectors.registry import CONNECTORS, known_connectors
from penstock.formats.registry import get_format, known_formats
from penstock.messages.cluster import JobSpec
from penstock.snapshots.writing import TRAILER_BYTES, parse_footer, parse_trailer
from penstock.sql.functions import register_module
from penstock.sql.session import SqlSession

DOCS = Path(__file__).parents[1] / "docs"
#: Pages of the repository that are pages of the site too (docs/hooks.py).
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
#: Pages that are pages of the site alone.
MADE = {"getting-started.md", "contributing.md", "security.md", "changelog.md"}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def module_folder(tmp_path: Path) -> Iterator[Path]:
    before = list(sys.path)
    sys.modules.pop("my_functions", None)  # of another test, from another folder
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("my_functions", None)


class _NoJobs:
    """A cluster that takes what the statements about jobs ask of it."""

    def jobs(self) -> list[dict[str, Any]]:
        return []

    def job(self, job_id: str) -> dict[str, Any]:
        return {"jid": job_id, "name": "of the page", "state": "RUNNING", "start-time": 0}

    def cancel(self, job_id: str) -> None:
        pass

    def stop(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> str:
        return "trigger"

    def location(self, job_id: str, trigger_id: str, what: str, tell: Any = None) -> str:
        return "file:///savepoints/1"


def test_every_sql_block_is_planned(module_folder: Path) -> None:
    session = SqlSession()
    session.jobs = _NoJobs
    module = module_folder / "my_functions.py"
    module.write_text(blocks("sql.md", "python")[0])
    register_module(session.catalog.functions, module)
    scripts = blocks("sql.md", "sql")
    assert len(scripts) >= 7
    planned = [result for script in scripts for result in session.run_script(script)]
    assert sum(result.kind == "job" for result in planned) >= 15


#: A page of its own for a connector: its examples are planned as those of the others.
#: Pages whose tables are looked up in a server when they are planned; a test with that server runs their SQL.
ON_REAL_SERVERS = {"connectors/jdbc.md", "connectors/mysql-cdc.md", "connectors/postgres-cdc.md"}
CONNECTOR_PAGES = [f"connectors/{page.name}" for page in sorted((DOCS / "connectors").glob("*.md"))]


@pytest.mark.parametrize(
    "page",
    ["connectors.md", "functions.md", "ids.md", *(p for p in CONNECTOR_PAGES if p not in ON_REAL_SERVERS)],
)
def test_sql_of_other_pages_is_planned(page: str) -> None:
    session = SqlSession()
    scripts = blocks(page, "sql")
    assert scripts
    for script in scripts:
        assert list(session.run_script(script))


#: Options that the planner sets; users cannot.
SET_BY_THE_PLANNER = {
    "sink.overwrite",
    "sink.truncate",
    "sink.row-change",
    "sink.static-partition",
    "partition.keys",
    "partition.filter",
}


def test_every_option_of_a_connector_or_format_is_on_its_page() -> None:
    text = "".join((DOCS / page).read_text() for page in ("connectors.md", *CONNECTOR_PAGES))
    options = {
        key
        for name in known_connectors()
        if type(connector := CONNECTORS.find(name)).__module__.startswith("penstock.")
        for key in connector.options
    }
    for name in known_formats():
        options |= set(get_format(name).options.options)
    named = set(re.findall(r"[\w.-]+", text))
    assert sorted(options - named - SET_BY_THE_PLANNER) == []


@pytest.mark.parametrize("path", sorted((DOCS.parent / "tests/snapshots/samples").glob("*.snapshot")))
def test_the_reader_of_snapshot_objects_reads_stored_ones(path: Path) -> None:
    shown: dict[str, Any] = {}
    exec(blocks("state-format.md", "python")[0], shown)
    rows: Counter[tuple[str, str]] = Counter()
    for operator, state, batch in shown["read_snapshot"](path):
        rows[operator, state] += batch.num_rows
    data = path.read_bytes()
    length, crc = parse_trailer(data[-TRAILER_BYTES:], path.name)
    footer = parse_footer(data[-TRAILER_BYTES - length : -TRAILER_BYTES], crc, path.name)
    expected = {
        (operator.uid, state.name): sum(block.rows for block in state.blocks)
        for operator in footer.operators
        for state in operator.states
        if state.blocks
    }
    assert rows
    assert dict(rows) == expected


@pytest.mark.parametrize("page", ["datastream.md"])
def test_every_program_is_planned(page: str) -> None:
    programs = [text for text in blocks(page, "python") if "execute(" in text]
    assert programs
    for text in programs:
        assert plan_spec(JobSpec(python=text)).vertices


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *(DOCS.parent / name for name in ROOT_PAGES)]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if Path(target).name not in MADE:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def objects_of_the_api_pages() -> list[str]:
    return [
        name
        for page in sorted((DOCS / "api").glob("*.md"))
        for name in re.findall(r"^::: ([\w.]+)", page.read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("name", objects_of_the_api_pages())
def test_what_the_api_pages_show_is_there(name: str) -> None:
    """The site is built from sources; a name that has moved would end the build."""
    assert pkgutil.resolve_name(name) is not None


def test_everything_public_has_a_place_on_the_api_pages() -> None:
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"\w+", text))
    whole = [pkgutil.resolve_name(name) for name in objects_of_the_api_pages()]
    for module in [thing for thing in whole if isinstance(thing, ModuleType)]:
        shown |= {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
        }
    assert sorted(set(penstock.api.__all__) - shown) == []


def test_the_command_line_page_is_what_the_code_says() -> None:
    assert (DOCS / "cli.md").read_text() == markdown(), "run: python -m penstock.cli.page > docs/cli.md"
