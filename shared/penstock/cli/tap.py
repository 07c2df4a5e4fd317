"""``penstock tap``: rows that pass over an edge of a running job, as they come."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.api.client import ClusterClient
from penstock.cli.showing import find_job, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: The widths of columns on a terminal: at least and at most.
NARROW, WIDE = 6, 32


def list_edges(url: str, start: str, format_: str) -> None:
    """Print the edges of the job whose id begins with ``start``."""
    with ClusterClient(url, patience_s=2) as client:
        edges = client.edges(find_job(client, start))
    if format_ == "json":
        print(json.dumps(edges, indent=2, ensure_ascii=False))
    elif not edges:
        print("the job has no edges: all of it runs in one vertex, or on Spark")
    else:
        rows = [
            [e["name"], e["source-name"], e["target-name"], e["ship-strategy"].lower(), e["tag"]]
            for e in edges
        ]
        print_table(["edge", "from", "to", "spread by", "side output"], rows)


def show_tap(url: str, start: str, edge: str, format_: str, *, rows: int, limit: int | None) -> None:
    """Print rows of an edge of the job whose id begins with ``start``, at most ``rows`` a second: until the job has ended,
    or ``limit`` rows are printed (None: no limit). What is no row goes to stderr."""
    with ClusterClient(url, patience_s=2) as client:
        events = client.tap(find_job(client, start), edge, rows)
        printed = passed = 0
        lines = _json_lines if format_ == "json" else Table(terminal=sys.stdout.isatty()).lines
        problem = ""
        for name, data in events:
            if name == "end":
                _say(data["reason"])
                break
            if (news := _problem(data)) != problem:
                problem = news
                _say(problem or "rows come again")
            left = data["rows"] if limit is None else data["rows"][: limit - printed]
            for line in lines(data["columns"], left):
                print(line)
            sys.stdout.flush()
            printed += len(left)
            passed += data["passed"] + data["unseen"]
            if limit is not None and printed >= limit:
                break
    _say(f"{printed:,} of {passed:,} rows")


def _problem(data: dict[str, Any]) -> str:
    found = [data["problem"]] if data["problem"] else []
    if data["silent"]:
        found.append(f"{data['silent']} of {data['subtasks']} subtasks do not answer")
    return "; ".join(found)


def _json_lines(columns: Sequence[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    names = [column["name"] for column in columns]
    for row in rows:
        values = dict(zip(names, row["values"], strict=True))
        yield json.dumps({**row, "values": values}, ensure_ascii=False)


class Table:
    """Rows as lines below a head. The first rows decide the widths; on a terminal longer values are cut."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._widths: list[int] = []

    def lines(self, columns: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
        """The lines of these rows, before the first with the head."""
        shown = [self._cells(row) for row in rows]
        if not self._widths and shown:
            head = ["subtask", "kind", "time", *(column["name"] for column in columns)]
            widest = [max(map(len, cells)) for cells in zip(head, *shown, strict=True)]
            self._widths = [max(NARROW, min(WIDE, width)) for width in widest]
            yield self._line(head)
            yield self._line(["-" * width for width in self._widths])
        for cells in shown:
            yield self._line(cells)

    def _cells(self, row: dict[str, Any]) -> list[str]:
        return [str(row["subtask"]), row["kind"], _time(row["time"]), *map(_text, row["values"])]

    def _line(self, cells: list[str]) -> str:
        if self._terminal:
            pairs = zip(cells, self._widths, strict=True)
            cells = [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell, width in pairs]
        return "  ".join(c.ljust(w) for c, w in zip(cells, self._widths, strict=True)).rstrip()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_printable, value))
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _time(ms: float | None) -> str:
    if ms is None:
        return ""
    try:
        return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{ms:.0f} ms"


def _say(text: str) -> None:
    if text:
        print(f"[{text}]", file=sys.stderr, flush=True)
