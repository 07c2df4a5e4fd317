"""Results as lines, a summary and the page docs/tpc.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tests.tpc.running import ENGINES, Outcome

TITLES = {"tpch": "TPC-H", "tpcds": "TPC-DS"}
_HEAD = """# TPC-H and TPC-DS

This page shows which queries of TPC-H and TPC-DS run on Penstock, on both engines. `make tpc` runs them and writes the page:

```
make tpc SCALE=0.01                                        # all queries (Python 3.11)
.venv/bin/python -m tests.tpc --scale 0.01 --suites tpch   # one suite; --help lists more
```

DuckDB's generators make the tables as Parquet files, and each query's rows are compared with DuckDB's own answer. The
seconds are those of one run in one process (streaming engine: parallelism 2; Spark: `local[2]`, one session) and include
planning. They show which queries are slow; they are no benchmark. `refused` means that planning refuses the query and names
what Penstock does not have.

"""


@dataclass(frozen=True)
class Result:
    """``rows``: of the right answer."""

    suite: str
    query: str
    engine: str
    outcome: Outcome
    rows: int

    def encoded(self) -> bytes:
        """One line of JSON."""
        plain = [
            self.suite,
            self.query,
            self.engine,
            self.outcome.kind,
            self.outcome.seconds,
            self.outcome.text,
        ]
        return msgspec.json.encode([*plain, self.rows])

    @property
    def word(self) -> str:
        return "right" if self.outcome.kind == "rows" else self.outcome.kind

    def line(self) -> str:
        text = f" {self.outcome.text}" if self.outcome.text else ""
        where = f"{TITLES[self.suite]} {self.query} {self.engine}"
        return f"{where}: {self.word} ({self.outcome.seconds:.1f} s, {self.rows} rows){text}"


def latest(lines: Iterable[bytes]) -> list[Result]:
    """The last result of each query and engine, in the suites' order."""
    found: dict[tuple[str, str, str], Result] = {}
    for line in lines:
        suite, query, engine, kind, seconds, text, rows = msgspec.json.decode(line)
        found[suite, query, engine] = Result(suite, query, engine, Outcome(kind, seconds, text=text), rows)
    return [found[key] for key in sorted(found, key=lambda key: (list(TITLES).index(key[0]), *key[1:]))]


def summary(results: Sequence[Result]) -> str:
    lines = []
    for suite in dict.fromkeys(r.suite for r in results):
        for engine in dict.fromkeys(r.engine for r in results):
            mine = [r for r in results if (r.suite, r.engine) == (suite, engine)]
            counts = {
                word: sum(r.word == word for r in mine) for word in ("right", "refused", "failed", "hangs")
            }
            told = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
            lines.append(f"{TITLES[suite]} on {engine}: {len(mine)} queries: {told}")
    return "\n".join(lines)


def page(results: Sequence[Result], scale: float, machine: str) -> str:
    """The whole page, as Markdown."""
    parts = [_HEAD, f"Scale factor {scale:g}; {machine}.\n\n"]
    parts += [f"- {line}\n" for line in summary(results).splitlines()]
    for suite in dict.fromkeys(r.suite for r in results):
        parts.append(
            f"\n## {TITLES[suite]}\n\n| query | rows | {' | '.join(ENGINES)} | |\n|---|---|---|---|---|\n"
        )
        for query in dict.fromkeys(r.query for r in results if r.suite == suite):
            of_query = {r.engine: r for r in results if (r.suite, r.query) == (suite, query)}
            cells = [_cell(of_query.get(engine)) for engine in ENGINES]
            rows = next(iter(of_query.values())).rows
            reasons = [r.outcome.text.splitlines()[0] for r in of_query.values() if r.outcome.text]
            reason = "; ".join(dict.fromkeys(reasons)).replace("|", "\\|")
            parts.append(f"| {query} | {rows} | {' | '.join(cells)} | {reason} |\n")
    return "".join(parts)


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    if result.word == "right":
        return f"{result.outcome.seconds:.1f} s"
    return result.word
