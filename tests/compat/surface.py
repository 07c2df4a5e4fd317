"""What PyFlink's public names are, and which of them Penstock has: ``python -m tests.compat.surface FOLDER``.

``FOLDER`` holds PyFlink's package ``pyflink`` (its wheel, unpacked). The sources are read, never imported.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.compat.pyflink.modules import MODULES
from penstock.compat.pyflink.names import Absent
from tests.compat.reasons import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pyflink-names.md"
PACKAGES = ("common", "datastream")
#: No part of the public surface: what carries Java's objects and PyFlink's own protocol.
INTERNAL = ("j_*", "*_proto", "get_java_*", "JavaObjectWrapper", "Internal*", "*Serializer", "*Wrapper")


@dataclass(frozen=True)
class Name:
    """A public name. ``path``: module (without ``pyflink.``), class and method; ``parameters``: of a method."""

    module: str
    path: str
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module.removeprefix('pyflink.')}.{self.path}"


def names(folder: Path) -> Iterator[Name]:
    """PyFlink's public classes, functions and methods, in the order of their modules."""
    for package in PACKAGES:
        for file in sorted((folder / "pyflink" / package).rglob("*.py")):
            module = ".".join(file.relative_to(folder).with_suffix("").parts)
            if file.name == "__init__.py" or module.endswith(".utils"):
                continue
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.FunctionDef) and _is_public(node.name):
                    yield Name(module, node.name, _parameters(node))
                elif isinstance(node, ast.ClassDef) and _is_public(node.name):
                    yield Name(module, node.name)
                    yield from _methods(module, node)


def _methods(module: str, node: ast.ClassDef) -> Iterator[Name]:
    seen = set()
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and _is_public(member.name) and member.name not in seen:
            seen.add(member.name)
            yield Name(module, f"{node.name}.{member.name}", _parameters(member))
        elif isinstance(member, ast.ClassDef) and _is_public(member.name):
            yield Name(module, f"{node.name}.{member.name}")


def _is_public(name: str) -> bool:
    return not name.startswith("_") and not any(fnmatch.fnmatch(name, pattern) for pattern in INTERNAL)


def _parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    given = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
    return tuple(a for a in given if not a.startswith("j_"))


def difference(name: Name) -> str | None:
    """What of it Penstock has not: None for nothing, else "absent" or the parameters."""
    if name.module not in MODULES:
        return "absent"
    found: Any = importlib.import_module(MODULES[name.module])
    for part in name.path.split("."):
        found = getattr(found, part, None) if not isinstance(found, Absent) else None
        if found is None or isinstance(found, Absent):
            return "absent"
    if not name.parameters or inspect.isclass(found):
        return None
    signature = inspect.signature(found).parameters.values()
    ours = [p.name for p in signature if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    ours = [p for p in ours if p not in ("self", "cls")]
    if ours[: len(name.parameters)] == list(name.parameters):
        return None
    shown = ", ".join(
        p.name if p.kind is not p.VAR_POSITIONAL else f"*{p.name}" for p in signature if p.name != "self"
    )
    return f"({', '.join(name.parameters)}) is ({shown})"


def reason(name: Name) -> str | None:
    """Why it differs, of the first pattern that fits."""
    return next((why for pattern, why in REASONS if fnmatch.fnmatch(str(name), pattern)), None)


@dataclass
class Surface:
    """``there``: how many names are the same; ``rows``: (name, difference, reason) of the others."""

    there: int
    rows: list[tuple[str, str, str | None]]


def compared(folder: Path) -> Surface:
    """PyFlink's names beside ours. A class that is not there stands for its methods."""
    out = Surface(0, [])
    gone: set[tuple[str, str]] = set()
    for name in names(folder):
        head = (name.module, name.path.split(".")[0])
        if head in gone:
            continue
        found = difference(name)
        if found is None:
            out.there += 1
            continue
        if "." not in name.path:
            gone.add(head)
        out.rows.append((str(name), found, reason(name)))
    return out


def page(folder: Path) -> str:
    """The page of the docs."""
    found = compared(folder)
    lines = [
        "# PyFlink's names",
        "",
        "Made by `python -m tests.compat.surface FOLDER` from PyFlink 2.3.0's wheel and compared with it by a test.",
        f"Of `pyflink.common` and `pyflink.datastream` {found.there} public classes, functions and methods are there with PyFlink's",
        f"parameters in PyFlink's order; the {len(found.rows)} others are below. A class that is not there stands for its methods.",
        "",
        "| name | difference | reason |",
        "|---|---|---|",
        *(
            f"| `{name}` | {what if what == 'absent' else f'`{what}`'} | {why} |"
            for name, what, why in found.rows
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(Path(sys.argv[1])))
