"""How much memory a process takes whose state is ten times its limit, as a curve over the rows.

``python -m bench.state_memory`` feeds one operator at a time with ten times as much state as it may hold
(rows of 1.5 KiB, or of 6 KiB that wait) in a process of its own, and prints what the state counted and by how much
the process had grown, both in units of the limit: after each tenth of the batches, at most after a batch, and at
most at any moment. What is mapped from files does not count. ``--times 2.5`` is the short form: the process is full
after a tenth of the rows, and what makes its peak happens in each of the following.
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
PROGRAMS = ROOT / "tests" / "state"
#: Batches of a MiB: 512 rows of 1.5 KiB, 128 of 6 KiB.
BATCHES_PER_MIB = (1 << 20) / (512 * 1_536)
#: Cases of ``resident_memory.py`` …
KEYED = (
    "aggregate", "distinct", "deduplicate", "top-n", "window-top-n", "over", "join", "windows", "sessions",
    "python-windows", "process",
)  # fmt: skip
#: … and of ``waiting_memory.py``.
WAITING = ("sort", "temporal-join", "window-join", "interval-join")
POINTS = 10


def run(case: str, limit_mib: int, times: float, folder: Path) -> tuple[dict[str, int], list[dict[str, int]]]:
    """(what the process said at its end, the points of its curve) for state of ``times`` the limit."""
    curve = folder / f"{case}.jsonl"
    batches = round(BATCHES_PER_MIB * times * limit_mib)
    arguments = [case, str(limit_mib << 20), str(folder / case), str(batches)]
    if case in KEYED:
        arguments.append(str(batches // 10))
    program = PROGRAMS / ("resident_memory.py" if case in KEYED else "waiting_memory.py")
    (folder / case).mkdir()
    done = subprocess.run(
        [sys.executable, str(program), *arguments, str(curve)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout), [json.loads(line) for line in curve.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--limit", type=int, default=128, metavar="MIB", help="memory of the state (default 128)"
    )
    parser.add_argument(
        "--times",
        type=float,
        default=10,
        help="state, in units of the limit (default 10; 2.5 is the short form)",
    )
    parser.add_argument(
        "--cases", default=",".join((*KEYED, *WAITING)), help="operators, with commas between them"
    )
    parser.add_argument(
        "--curves", type=Path, help="keep the points of all curves in this folder, a JSON object a line"
    )
    options = parser.parse_args()
    limit_bytes = options.limit << 20
    table = Table(
        "operator", *(f"{(i + 1) * 100 // POINTS} %" for i in range(POINTS)),
        "after a batch", "at any moment", "counted",
    )  # fmt: skip
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found, points = run(case, options.limit, options.times, Path(folder))
            if options.curves is not None:
                options.curves.mkdir(parents=True, exist_ok=True)
                (options.curves / f"{case}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in points))
        shown = [
            points[(i + 1) * len(points) // POINTS - 1]["growth_bytes"] / limit_bytes for i in range(POINTS)
        ]
        most, peak = found["growth_bytes"] / limit_bytes, found["peak_bytes"] / limit_bytes
        counted = max(p["counted_bytes"] for p in points) / limit_bytes
        table.add_row(case, *(f"{x:.2f}" for x in shown), f"{most:.2f}", f"{peak:.2f}", f"{counted:.2f}")
        print(f"{case}: at most {most:.2f} after a batch, {peak:.2f} at any moment", flush=True)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
