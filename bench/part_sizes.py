"""What it takes to add an operator, a connector, a format or a function: counted in the source, before and after.

    git archive 7133a37 shared services | tar -x -C ../before
    python -m bench.part_sizes --before ../before

For each part: the lines of its own modules; the files that name it elsewhere, which somebody had to edit to add it;
and the names that its own modules import from the rest of Penstock, which somebody had to know. Decision 36 has the
table.
"""

from __future__ import annotations

import argparse
import ast
import re
from dataclasses import dataclass
from pathlib import Path

#: The end of an import path ("module:Class"), or a bare word that is no class's name.
_WORD = re.compile(r"(?:[\w.]+:(\w+)|([a-z_]+|[A-Z_]+))$")
HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Part:
    """``modules``: its own files or folders (ending in ``/``), in any of the copies' layouts, below the copy.
    ``names``: its classes, or (for what is found by a word, as formats are) that word."""

    name: str
    modules: tuple[str, ...]
    names: frozenset[str]
    #: What plans it, where that has a folder; else planning has it among its own modules.
    plan: str = "-"


def operator(name: str, run: tuple[str, ...], plan: str, *names: str) -> Part:
    """``run``: what a slot runs; ``plan``: the folder with its plan node."""
    folders = ("runtime/operators", "operators")
    own = (f"shared/penstock/{folder}/{file}" for folder in folders for file in run)
    return Part(name, tuple(own), frozenset(names), f"shared/penstock/plan/operators/{plan}/")


def library(name: str, module: str, *names: str) -> Part:
    return Part(name, (f"shared/penstock/{module}",), frozenset(names))


PARTS = (
    operator("Top-N", ("top_n.py", "top_rows.py"), "top_n", "TopN", "TopNSpec"),
    operator("group aggregation", ("group_aggregate.py",), "aggregate", "Aggregate", "GroupAggregateSpec"),
    operator(
        "window aggregation",
        ("window_aggregate.py",),
        "window_aggregate",
        "WindowAggregate",
        "WindowAggregateSpec",
    ),
    operator("regular join", ("regular_join.py", "join.py", "join_side.py"), "join", "Join", "JoinSpec"),
    operator("OVER", ("over.py",), "over", "OverAggregate", "OverSpec", "Over"),
    operator(
        "temporal join",
        ("temporal_join.py", "temporal_versions.py"),
        "temporal_join",
        "TemporalJoin",
        "TemporalJoinSpec",
    ),
    operator("set operation", ("set_operation.py",), "set_operation", "SetOperation", "SetOperationSpec"),
    Part(
        "debounce (of another package)",
        ("tests/plan/outside/debounce/",),
        frozenset({"Debounce", "DebounceSpec"}),
    ),
    library("datagen", "connectors/datagen.py", "DatagenConnector"),
    library("filesystem", "connectors/filesystem/", "FilesystemConnector"),
    library("csv", "formats/csv.py", "CsvFormat"),
    library("parquet", "formats/parquet.py", "ParquetFormat", "parquet"),
    library("orc", "formats/orc.py", "OrcFormat", "orc"),
    library("UPPER", "functions/strings.py", "UPPER"),
)


class Copy:
    """The product code of a copy: path → (text, tree)."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, tuple[str, ast.Module]] = {}
        for folder in ("shared/penstock", "services", "tests/plan/outside"):
            for path in sorted((root / folder).rglob("*.py")):
                if "testing" not in path.parts and path.name != "conftest.py" and "test_" not in path.name:
                    text = path.read_text()
                    self.files[str(path.relative_to(root))] = text, ast.parse(text)

    def counted(self, part: Part) -> tuple[str, int, int] | None:
        """(lines, files elsewhere that name it, names that it imports); None when the copy does not have it."""
        runs = [
            f
            for f in self.files
            if any(f == m or (m.endswith("/") and f.startswith(m)) for m in part.modules)
        ]
        if not runs:
            return None
        plans = [f for f in self.files if f.startswith(part.plan)]
        own = [*runs, *plans]
        lines = str(self.lines(*runs)) + (f" + {self.lines(*plans)}" if plans else "")
        elsewhere = [f for f, (_, tree) in self.files.items() if f not in own and part.names & _named(tree)]
        own_modules = tuple(f.removeprefix("shared/").removesuffix(".py").replace("/", ".") for f in own)
        imported = {x for f in own for x in _imported(self.files[f][1]) if not x[0].startswith(own_modules)}
        return lines, len(elsewhere), len(imported)

    def lines(self, *files: str) -> int:
        return sum(self.files[file][0].count("\n") for file in files)

    def operators(self) -> dict[str, str]:
        """What slots run: name of the module → its path."""
        folders = ("shared/penstock/runtime/operators/", "shared/penstock/operators/")
        return {file.rsplit("/", 1)[-1]: file for file in self.files if file.startswith(folders)}


def _named(tree: ast.Module) -> set[str | None]:
    out: set[str | None] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            out.add(node.id)
        elif isinstance(node, ast.Attribute):
            out.add(node.attr)
        elif isinstance(node, (ast.alias, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            out.update(found.group(1, 2) if (found := _WORD.match(node.value)) else ())
    return out


def _imported(tree: ast.Module) -> set[tuple[str, str]]:
    return {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("penstock")
        for alias in node.names
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="another copy of the code")
    before, after = Copy(parser.parse_args().before), Copy(HERE)
    print("| part | lines | files elsewhere | names |\n|---|---|---|---|")
    for part in PARTS:
        pairs = zip(before.counted(part) or ("–",) * 3, after.counted(part) or ("–",) * 3, strict=True)
        print(f"| {part.name} | " + " | ".join(f"{b} → {a}" for b, a in pairs) + " |")
    old, new = before.operators(), after.operators()
    print(f"\nOperators: {before.lines(*old.values())} lines in {len(old)} modules before,", end=" ")
    same = [path for name, path in new.items() if name in old]
    print(f"{after.lines(*same)} in {len(same)} after.")


if __name__ == "__main__":
    main()
