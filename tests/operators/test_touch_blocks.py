"""``with table.touch(…)``: no operator is suspended inside, and nothing goes around the blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock.operators

FOLDER = Path(penstock.operators.__file__).parent
BLOCKS = ("touch", "compare")


def blocks(tree: ast.AST) -> Iterator[ast.With]:
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            if any(isinstance(c.func, ast.Attribute) and c.func.attr in BLOCKS for c in calls):
                yield node


def test_no_block_yields() -> None:
    """A generator that is suspended inside would leave the keys half changed for a barrier."""
    found = {path.name: list(blocks(ast.parse(path.read_text()))) for path in FOLDER.glob("*.py")}
    assert sum(map(len, found.values())) >= 12
    for name, within in found.items():
        for block in within:
            yields = [n.lineno for n in ast.walk(block) if isinstance(n, (ast.Yield, ast.YieldFrom))]
            assert not yields, f"{name}, lines {yields}: collect what comes out and yield it behind the block"
            returns = [n.lineno for n in ast.walk(block) if isinstance(n, ast.Return)]
            assert not returns, f"{name}, lines {returns}: leave the block at its end"


def test_a_yield_inside_is_found() -> None:
    [block] = blocks(ast.parse("with self._rows.touch(k, n) as rows:\n    yield rows\n"))
    assert any(isinstance(node, ast.Yield) for node in ast.walk(block))
