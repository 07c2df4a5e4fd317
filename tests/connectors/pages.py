"""What the pages of connectors say in their tables, compared with the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from penstock.options import OptionSet

_DOCS = Path(__file__).parents[2] / "docs/connectors"


class Page:
    """A page of docs/connectors."""

    def __init__(self, name: str) -> None:
        self.text = (_DOCS / f"{name}.md").read_text()

    def table(self, head: str) -> list[list[str]]:
        """The cells of the table below the line ``head``."""
        rows = self.text.split(head, 1)[1].split("\n\n", 1)[0].strip().splitlines()[1:]
        return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in rows]

    def compare(self, known: OptionSet, elsewhere: Iterable[str]) -> None:
        """AssertionError unless the table of options has each option with its default, and no other. ``elsewhere``:
        those that are set by the planner or stand on another page."""
        found: dict[str, str] = {}
        for keys, defaults, _ in self.table("| option | default | meaning |"):
            names = re.findall(r"`([^`]+)`", keys)
            values = [defaults] if len(names) == 1 else [part.strip() for part in defaults.split(",")]
            found |= dict(zip(names, values, strict=True))
        left_out = set(elsewhere)
        options = {key: option for key, option in known.options.items() if key not in left_out}
        assert set(found) == set(options)
        for key, option in options.items():
            shown = found[key].strip("`")
            if option.required:
                assert shown == "required", key
            elif option.default in (None, ""):
                assert shown == "–" or shown.startswith("`") or "format" in shown, key
            else:
                assert option.parse(shown) == option.default, key

    def refused(self) -> list[str]:
        """The options of Flink that the page says are refused."""
        rows = self.table("| option | instead |")
        return [key for keys, _ in rows for key in re.findall(r"`([^`]+)`", keys)]
