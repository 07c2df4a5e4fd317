"""Seeds to findings: a case of a seed, its verdict, and the smallest query that has the same."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.fuzz import engines
from tests.fuzz.engines import Outcome
from tests.fuzz.functions import OURS
from tests.fuzz.generate import Generator
from tests.fuzz.tables import Table, random_table
from tests.fuzz.tree import Node, smaller
from tests.golden.values import difference, plain_rows

Mode = Literal["STREAMING", "BATCH"]
#: Name of a way to run it → that run.
Runs = dict[str, Callable[["FuzzCase"], Outcome]]


@dataclass(frozen=True, slots=True)
class FuzzCase:
    seed: int
    mode: Mode
    tables: tuple[Table, ...]
    query: Node
    atoms: dict[str, list[Node]]
    #: Rows before the checkpoint that is restored.
    after: int


@dataclass(slots=True)
class Verdict:
    """``status``: agreed (all engines gave DuckDB's rows), refused (at planning), skipped (DuckDB has no
    answer), or a finding: ``wrong`` (other rows), ``crashed``, ``failed``, ``split`` (one engine refuses)."""

    status: Literal["agreed", "refused", "skipped", "invalid", "wrong", "crashed", "failed", "split"]
    engine: str = ""
    words: str = ""
    refusals: list[str] = field(default_factory=list)

    @property
    def finding(self) -> bool:
        return self.status in ("wrong", "crashed", "failed", "split")

    def same_kind(self, other: Verdict) -> bool:
        return (self.status, self.engine, _shape(self)) == (other.status, other.engine, _shape(other))


def _shape(verdict: Verdict) -> str:
    """Of a crash: its error without the values in it; of wrong rows: nothing."""
    if verdict.status == "wrong":
        return ""
    return re.sub(r"\d+|'[^']*'", "#", verdict.words)[-160:]


def case_of(seed: int) -> FuzzCase:
    r = random.Random(seed)
    mode: Mode = "STREAMING" if r.random() < 0.6 else "BATCH"
    tables = [random_table(r, name) for name in "ab"]
    generator = Generator(r, tables, streaming=mode == "STREAMING")
    query = generator.query()
    return FuzzCase(seed, mode, tuple(tables), query, generator.atoms(query), r.randint(1, 15))


def runs(mode: Mode, spark: Any = None) -> Runs:
    """``spark``: a session; without one only the streaming engine runs."""
    found: Runs = {
        "p=1": lambda c: engines.streaming(c.query.text(), c.tables, c.mode, 1),
        "p=3": lambda c: engines.streaming(c.query.text(), c.tables, c.mode, 3),
    }
    if mode == "STREAMING":
        found["killed"] = lambda c: engines.killed(c.query.text(), c.tables, 2, c.after)
    elif spark is not None:
        found["spark"] = lambda c: engines.on_spark(c.query.text(), c.tables, spark)
    return found


def judge(case: FuzzCase, ways: Runs) -> Verdict:
    theirs = case.query.text(duckdb=True)
    if OURS in theirs:
        # DuckDB has no such function: the engines are compared with each other.
        reference = _agreed(case)
        if reference.kind == "refused":
            return Verdict("refused", "", reference.words, [reference.words])
        if reference.kind == "failed":
            return Verdict("skipped", "p=1", reference.words)
    else:
        reference = engines.by_duckdb(theirs, case.tables)
    if reference.kind == "refused":
        return Verdict("invalid", "duckdb", reference.words)
    if reference.kind == "crashed":
        return Verdict("crashed", "p=1", reference.words)
    outcomes = {name: run(case) for name, run in ways.items()}
    refusals = [o.words for o in outcomes.values() if o.kind == "refused"]
    for name, outcome in outcomes.items():
        if outcome.kind == "crashed":
            return Verdict("crashed", name, outcome.words)
    if reference.kind == "failed":
        return Verdict("skipped", "duckdb", reference.words)
    if len(refusals) == len(outcomes):
        return Verdict("refused", "", refusals[0], refusals)
    want = plain_rows(reference.rows)
    for name, outcome in outcomes.items():
        match outcome.kind:
            case "refused":
                return Verdict("split", name, outcome.words)
            case "failed":
                return Verdict("failed", name, outcome.words)
            case _:
                wrong = difference([list(x) for x in outcome.rows], want, ordered=False, kinds=False)
                if wrong:
                    return Verdict("wrong", name, wrong)
    return Verdict("agreed")


def _agreed(case: FuzzCase) -> Outcome:
    """The rows of the streaming engine with one subtask: what DuckDB's rows are for other queries."""
    return engines.streaming(case.query.text(), case.tables, case.mode, 1)


def shrunk(case: FuzzCase, verdict: Verdict, ways: Runs, *, budget: int = 400) -> tuple[FuzzCase, Verdict]:
    """The smallest case found within ``budget`` tries that fails in the same way."""
    only = {verdict.engine: ways[verdict.engine]} if verdict.status != "split" else ways
    tries = 0
    better = True
    while better and tries < budget:
        better = False
        for candidate in _candidates(case):
            tries += 1
            if tries > budget:
                break
            found = judge(candidate, only)
            if found.same_kind(verdict):
                case, verdict, better = candidate, found, True
                break
    return case, verdict


def _candidates(case: FuzzCase) -> list[FuzzCase]:
    """Smaller by half of a table's rows, by a part of the query, by one row; large steps first."""
    out: list[FuzzCase] = []
    for i, table in enumerate(case.tables):
        n = len(table.rows)
        for rows in _halves(table.rows) if n > 1 else [()] if n else []:
            tables = (*case.tables[:i], table.with_rows(tuple(rows)), *case.tables[i + 1 :])
            out.append(replace(case, tables=tables))
    queries = sorted(smaller(case.query, case.atoms), key=Node.size)
    out += [replace(case, query=q) for q in queries]
    for i, table in enumerate(case.tables):
        if 1 < len(table.rows) <= 12:
            for k in range(len(table.rows)):
                rows = table.rows[:k] + table.rows[k + 1 :]
                out.append(
                    replace(case, tables=(*case.tables[:i], table.with_rows(rows), *case.tables[i + 1 :]))
                )
    return out


def _halves(rows: Sequence[Any]) -> list[Sequence[Any]]:
    middle = len(rows) // 2
    return [rows[:middle], rows[middle:]]


def told(case: FuzzCase, verdict: Verdict) -> str:
    """A finding in words that can be pasted into a test."""
    lines = [
        f"seed {case.seed}: {verdict.status} on {verdict.engine} ({case.mode})",
        f"  {case.query.text()}",
    ]
    if case.query.text() != case.query.text(duckdb=True):
        lines.append(f"  DuckDB: {case.query.text(duckdb=True)}")
    used = case.query.text()
    for table in case.tables:
        if f" {table.name} " in used:
            lines.append(f"  {table.name}: {', '.join(f'{n} {k}' for n, k in table.columns)}")
            lines += [f"    {row}" for row in table.rows]
    lines += [f"  {line}" for line in verdict.words.splitlines()]
    return "\n".join(lines)
