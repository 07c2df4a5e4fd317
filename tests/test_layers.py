"""What import-linter's layers do not say: every package has its layer, no modules import each other in a circle, and
none is longer than 400 lines."""

from __future__ import annotations

import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
#: A module that needs more has a second idea, which gets a module of its own.
MOST_LINES = 400


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    # An import for types only may go both ways: a stream returns a keyed stream, and the other way round.
    return grimp.build_graph(
        "penstock", "penstock_services", exclude_type_checking_imports=True, cache_dir=None
    )


def test_every_package_is_in_a_layer(graph: grimp.ImportGraph) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    listed = {name.strip() for line in layers for name in line.split("|")}
    assert listed == {*graph.find_children("penstock"), *graph.find_children("penstock_services")}


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert circles(imports) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_module_is_longer_than_the_style_allows() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in ("shared/penstock", "services")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert len(lengths) > 500
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_one_module_knows_how_arrow_lays_out_arrays() -> None:
    users = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "shared/penstock").rglob("*.py"))
        if ".from_buffers(" in (text := path.read_text()) or ".buffers()" in text
    ]
    assert users == ["shared/penstock/types/arrow_buffers.py"]


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each imports, directly or not, each other (Tarjan's components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        open_.append(module)
        for imported in sorted(imports[module]):
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in open_:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            start = open_.index(module)
            if len(open_) - start > 1:
                found.append(sorted(open_[start:]))
            del open_[start:]

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found
