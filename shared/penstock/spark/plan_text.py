"""Spark's own plans as text, under titles that are not ours."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.frames import Frame

_TITLES = {
    "== Optimized Logical Plan ==": "== Spark Optimized Logical Plan ==",
    "== Physical Plan ==": "== Spark Physical Plan ==",
}


def plan_text(frame: Frame, mode: str = "simple") -> str:
    """What ``DataFrame.explain`` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.df.explain(mode=mode)
    return out.getvalue()


def own_sections(text: str) -> str:
    """Of what Spark prints the optimised and the physical plan, under titles that are not ours."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line in _TITLES), 0)
    return "\n".join(_TITLES.get(line, line) for line in lines[first:]).rstrip() + "\n"
