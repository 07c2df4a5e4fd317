"""How much memory a process takes whose state is ten times its limit, as a curve over the rows.

``python -m bench.state_memory`` feeds one operator at a time with ten times as much state as it may hold
(rows of 1.5 KiB) in a process of its own, and prints what the state counted and by how much the process had
grown, both in units of the limit. What is mapped from files does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "state" / "resident_memory.py"
#: Batches of 512 rows of 1.5 KiB that are ten times a MiB.
BATCHES_PER_MIB = 10 * (1 << 20) / (512 * 1_536)
CASES = ("aggregate", "deduplicate", "top-n", "over", "join", "windows", "sessions", "process")
POINTS = 10


def run(case: str, limit_mib: int, folder: Path) -> tuple[dict[str, int], list[dict[str, int]]]:
    """(what the process said at its end, the points of its curve)."""
    curve = folder / f"{case}.jsonl"
    batches = round(BATCHES_PER_MIB * limit_mib)
    arguments = [case, str(limit_mib << 20), str(folder / case), str(batches), str(batches // 10), str(curve)]
    (folder / case).mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout), [json.loads(line) for line in curve.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--limit", type=int, default=128, metavar="MIB", help="memory of the state (default 128)"
    )
    parser.add_argument("--cases", default=",".join(CASES), help="operators, with commas between them")
    parser.add_argument(
        "--curves", type=Path, help="keep the points of all curves in this folder, a JSON object a line"
    )
    options = parser.parse_args()
    limit_bytes = options.limit << 20
    table = Table(
        "operator", *(f"{(i + 1) * 100 // POINTS} %" for i in range(POINTS)), "most", "counted at most"
    )
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found, points = run(case, options.limit, Path(folder))
            if options.curves is not None:
                options.curves.mkdir(parents=True, exist_ok=True)
                (options.curves / f"{case}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in points))
        shown = [
            points[(i + 1) * len(points) // POINTS - 1]["growth_bytes"] / limit_bytes for i in range(POINTS)
        ]
        most = max(found["growth_bytes"], *(p["growth_bytes"] for p in points)) / limit_bytes
        counted = max(p["counted_bytes"] for p in points) / limit_bytes
        table.add_row(case, *(f"{x:.2f}" for x in shown), f"{most:.2f}", f"{counted:.2f}")
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
