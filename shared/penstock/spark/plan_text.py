"""Spark's own plans as text, under titles that differ from those of our plans."""

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
    """The text that ``DataFrame.explain`` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.df.explain(mode=mode)
    return out.getvalue()


def own_sections(text: str) -> str:
    """The optimised and the physical plan from Spark's text, under titles that differ from those of our
    plans."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line in _TITLES), 0)
    return "\n".join(_TITLES.get(line, line) for line in lines[first:]).rstrip() + "\n"
