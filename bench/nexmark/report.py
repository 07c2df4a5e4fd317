"""What was measured, and the tables of docs/nexmark.md made of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = {"generator": "made in the source", "json": "from JSON lines", "parquet": "from Parquet"}
#: Around the tables in the docs.
BEGIN, END = "<!-- made by python -m bench: begin -->", "<!-- made by python -m bench: end -->"


@dataclass(frozen=True)
class Figure:
    """One query on one engine. ``cpu_s``: of the processes that handle events, within
    ``seconds``. ``warm_events`` went through the same process before. ``evenness``: CPU time of
    the least busy slot over the busiest. Bytes: highest resident, and sent between vertices."""

    engine: str
    query: str
    source: str
    events: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    push_down: bool = False
    warm_events: int = 0
    evenness: float = 1.0
    shuffled_bytes: int = 0
    checkpoints: int = 0
    rows: int = 0
    checksum: str = ""

    @property
    def rate(self) -> float:
        """Thousand events/s."""
        return self.events / self.seconds / 1000

    @property
    def cpu_rate(self) -> float:
        """Thousand events a CPU second."""
        return self.events / self.cpu_s / 1000 if self.cpu_s else math.nan


def append(path: Path, figure: Figure) -> None:
    with path.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(figure)) + "\n")


def read(path: Path) -> list[Figure]:
    return [Figure(**json.loads(line)) for line in path.read_text().splitlines()]


def report(figures: Sequence[Figure]) -> str:
    """Markdown. Of figures of the same thing the last counts."""
    found = {(f.engine, f.source, f.push_down, f.query): f for f in figures}
    queries = sorted({f.query for f in figures}, key=lambda name: int(name[1:]))
    pairs = {
        source: [
            (found["penstock", source, False, q], found.get(("flink", source, False, q)))
            for q in queries
            if ("penstock", source, False, q) in found
        ]
        for source in SOURCES
    }
    parts = [_headline(pairs)]
    parts += [_beside(source, rows) for source, rows in pairs.items() if rows]
    pushed = [
        (found["penstock", s, False, q], found["penstock", s, True, q], found.get(("flink", s, False, q)))
        for s in SOURCES
        for q in queries
        if {("penstock", s, False, q), ("penstock", s, True, q)} <= found.keys()
    ]
    if pushed:
        parts.append(_push_down(pushed))
    parts.append(_runs(found.values()))
    return "\n\n".join(part for part in parts if part) + "\n"


def into_docs(path: Path, text: str) -> None:
    """Put the tables between the marks of the file. ValueError when it has none."""
    old = path.read_text()
    if old.count(BEGIN) != 1 or old.count(END) != 1:
        raise ValueError(f"{path} needs one line {BEGIN!r} and one {END!r}")
    before, rest = old.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}")


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def _headline(pairs: dict[str, list[tuple[Figure, Figure | None]]]) -> str:
    lines = []
    for source, rows in pairs.items():
        both = [(ours, flink) for ours, flink in rows if flink is not None]
        if both:
            clock = [(ours.rate / flink.rate, ours.query) for ours, flink in both]
            cpu = [(ours.cpu_rate / flink.cpu_rate, ours.query) for ours, flink in both]
            lines.append([f"whole events, {SOURCES[source]}", str(len(both)), *_spread(clock), *_spread(cpu)])
    if not lines:
        return ""
    columns = ["Penstock over Flink", "queries", "by the clock", "lowest", "by CPU time", "lowest"]
    return _table(columns, lines)


def _spread(ratios: list[tuple[float, str]]) -> tuple[str, str]:
    lowest, query = min(ratios)
    return f"**{_times(geometric_mean([r for r, _ in ratios]))}**", f"{_times(lowest)} ({query})"


def _beside(source: str, rows: list[tuple[Figure, Figure | None]]) -> str:
    columns = ["query", "Penstock k ev/s", "Flink k ev/s", "by the clock"]
    columns += ["Penstock k ev/CPU s", "Flink k ev/CPU s", "by CPU time"]
    lines = []
    for ours, flink in rows:
        line = [ours.query, f"{ours.rate:,.0f}"]
        line += ["–", "–"] if flink is None else [f"{flink.rate:,.0f}", _times(ours.rate / flink.rate)]
        line += [f"{ours.cpu_rate:,.0f}"]
        line += (
            ["–", "–"]
            if flink is None
            else [f"{flink.cpu_rate:,.0f}", _times(ours.cpu_rate / flink.cpu_rate)]
        )
        lines.append(line)
    return f"### Whole events, {SOURCES[source]}\n\n{_table(columns, lines)}"


def _push_down(rows: list[tuple[Figure, Figure, Figure | None]]) -> str:
    columns = ["query", "source", "whole events k ev/s", "pushed down k ev/s", "gain", "gain by CPU time"]
    columns += ["pushed down over Flink", "by CPU time"]
    lines = []
    for whole, pushed, flink in rows:
        line = [whole.query, whole.source, f"{whole.rate:,.0f}", f"{pushed.rate:,.0f}"]
        line += [_times(pushed.rate / whole.rate), _times(pushed.cpu_rate / whole.cpu_rate)]
        line += (
            ["–", "–"]
            if flink is None
            else [_times(pushed.rate / flink.rate), _times(pushed.cpu_rate / flink.cpu_rate)]
        )
        lines.append(line)
    return f"### With push-down into the source\n\n{_table(columns, lines)}"


def _runs(figures: Iterable[Figure]) -> str:
    columns = ["engine", "source", "push-down", "query", "warmed up by (M)", "events (M)", "seconds", "CPU s"]
    columns += ["evenness", "peak MB", "shuffled MB", "ckpts", "rows", "checksum"]
    lines = []
    for f in figures:
        ours = f.engine == "penstock"
        line = [f.engine, f.source, ("on" if f.push_down else "off") if ours else "–", f.query]
        line += [f"{f.warm_events / 1e6:.0f}" if f.warm_events else "–", f"{f.events / 1e6:.1f}"]
        line += [f"{f.seconds:.1f}", f"{f.cpu_s:.1f}"]
        line += [f"{f.evenness:.2f}" if ours else "–", f"{f.peak_bytes / 1e6:,.0f}"]
        line += (
            [f"{f.shuffled_bytes / 1e6:,.0f}", str(f.checkpoints), f"{f.rows:,}", f"`{f.checksum}`"]
            if ours
            else ["–"] * 4
        )
        lines.append(line)
    return f"### The runs\n\n{_table(columns, lines)}"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio < 1 else f"{ratio:.1f} ×"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
