"""``python -m tests.tpc``: TPC-H's and TPC-DS's queries on both engines, held against DuckDB.

A line a query and engine as they come; at the end the table of docs/tpc.md (``--docs`` writes it). The
exit status is 0 when every query was right or refused.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

from tests.tpc.answers import Answers
from tests.tpc.data import generate
from tests.tpc.report import Result, latest, page, summary
from tests.tpc.running import ENGINES, LIMIT_S, Outcome, Runner

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "tpc.md"


def queries(suite: str) -> dict[str, str]:
    """``q01`` … → SQL."""
    return {path.stem: path.read_text() for path in sorted((HERE / "queries" / suite).glob("*.sql"))}


def judged(answers: Answers, sql: str, outcome: Outcome) -> Outcome:
    """``failed`` for rows that are not the answer."""
    if outcome.kind != "rows":
        return outcome
    difference = answers.difference(sql, outcome.rows)
    if not difference:
        return outcome
    return Outcome("failed", outcome.seconds, text=f"wrong rows: {difference}")


def run(args: argparse.Namespace, found: Path) -> None:
    for suite in args.suites:
        answers = Answers(generate(suite, args.scale, args.folder))
        for engine in args.engines:
            with Runner(engine, answers.declarations(), args.limit) as runner:
                for name, sql in queries(suite).items():
                    if args.queries and name not in args.queries:
                        continue
                    outcome = judged(answers, sql, runner(sql))
                    result = Result(suite, name, engine, outcome, len(answers.rows(sql)))
                    print(result.line(), flush=True)
                    with found.open("ab") as file:
                        file.write(result.encoded() + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tpc", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="scale factor: 1 is about 1 GB of text")
    parser.add_argument("--suites", type=lambda x: x.split(","), default=["tpch", "tpcds"])
    parser.add_argument("--engines", type=lambda x: x.split(","), default=list(ENGINES))
    parser.add_argument("--queries", type=lambda x: x.split(","), metavar="q01,q02", default=[])
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after which a query hangs")
    parser.add_argument("--folder", type=Path, default=Path("out/tpc"), help="where the tables are kept")
    parser.add_argument("--add", action="store_true", help="to the results of the runs before, for the page")
    parser.add_argument("--docs", action="store_true", help="write docs/tpc.md")
    args = parser.parse_args()
    args.folder = args.folder.absolute()
    args.folder.mkdir(parents=True, exist_ok=True)
    found = args.folder / f"results-{args.scale:g}.jsonl"
    if not args.add:
        found.unlink(missing_ok=True)
    run(args, found)
    results = latest(found.read_bytes().splitlines())
    print(summary(results))
    if args.docs:
        DOCS.write_text(
            page(results, args.scale, f"Python {platform.python_version()}, {platform.machine()}")
        )
    return 0 if all(r.outcome.kind in ("rows", "refused") for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
