"""The table of docs/chaos.md, from the lines that runs logged.

python -m tests.chaos.summary LOG…
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.faults import KINDS


def tables(lines: Iterable[dict[str, Any]]) -> str:
    """Markdown: faults by kind, then runs. Faults on top of others share what followed."""
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    runs: list[dict[str, Any]] = []
    skipped: dict[str, int] = defaultdict(int)
    for line in lines:
        if "run" in line:
            runs.append(line)
        elif "skipped" in line:
            skipped[line["kind"]] += 1
        else:
            by_kind[line["kind"]].append(line)
    return f"{_kinds(by_kind)}\n\n{_runs(runs)}\n\n{_skipped(skipped)}".strip() + "\n"


def _kinds(by_kind: dict[str, list[dict[str, Any]]]) -> str:
    out = ["| kind | thrown | must | restarted | restored checkpoints |", "|---|---|---|---|---|"]
    for kind in (k for k in KINDS if k in by_kind):
        faults = by_kind[kind]
        restored = sorted({f["restored"] for f in faults if f["restored"] is not None})
        shown = f"{restored[0]}–{restored[-1]}" if restored else "–"
        count = sum(f["restored"] is not None for f in faults)
        out.append(f"| `{kind}` | {len(faults)} | {KINDS[kind].must} | {count} | {shown} |")
    everything = [f for faults in by_kind.values() for f in faults]
    restarted = sum(f["restored"] is not None for f in everything)
    return "\n".join([*out, f"| all | {len(everything)} | | {restarted} | |"])


def _runs(runs: list[dict[str, Any]]) -> str:
    out = [
        "| run (workload, seed) | faults | attempts | rows compared | digest | fault-free | differences |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        rows = sum(run["rows"].values())
        wrong = len(run["wrong"])
        out.append(
            f"| {run['run']} | {run['faults']} | {run['attempts']} | {rows:,} | `{run['digest']}` | "
            f"`{run['fault_free']}` | {wrong} |"
        )
    return "\n".join(out)


def _skipped(skipped: dict[str, int]) -> str:
    if not skipped:
        return ""
    return "Skipped: " + ", ".join(f"`{kind}` {count}×" for kind, count in sorted(skipped.items())) + "."


def main(paths: list[str]) -> None:
    lines = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    print(tables(lines), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
