"""``python -m tests.chaos``: faults on a real cluster, the output against the fault-free run.

One JSON line a fault and one a run, on standard output (and ``--log``). Runs go on, workload
after workload and seed after seed, until ``--faults`` were thrown; with ``--workload`` and
``--seed`` and ``--per-run`` one run is repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.chaos.compare import digest
from tests.chaos.faults import KINDS
from tests.chaos.plan import plan
from tests.chaos.run import fault_free, one_run
from tests.chaos.workloads import NAMES

PER_RUN = 25


@dataclass(frozen=True)
class Logged:
    """Lines of one run."""

    log: Callable[[dict[str, Any]], None]
    run: dict[str, Any]

    def line(self, line: dict[str, Any]) -> None:
        self.log({**self.run, **line})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each next run has the next")
    parser.add_argument("--faults", type=int, default=200, help="to throw in all")
    parser.add_argument("--per-run", type=int, default=PER_RUN, help="to throw in one run")
    parser.add_argument("--workload", action="append", choices=NAMES, help="default: all in turn")
    parser.add_argument("--kinds", default="", help=f"of {', '.join(KINDS)}; default: all with a weight")
    parser.add_argument("--size", type=int, help="events of a Nexmark job, or flights")
    parser.add_argument("--log", type=Path, help="append the JSON lines to this file too")
    args = parser.parse_args()
    kinds = [k for k in args.kinds.split(",") if k] or [k for k, kind in KINDS.items() if kind.weight]
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")

    not_shown: dict[str, str] = {}

    def log(line: dict[str, Any]) -> None:
        if "skipped" in line and KINDS[line["kind"]].hosts:
            not_shown[line["kind"]] = line["skipped"]
        text = json.dumps(line)
        print(text, flush=True)
        if args.log:
            with args.log.open("a") as file:
                file.write(text + "\n")

    # However it is ended, hosts and processes are removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    names = args.workload or list(NAMES)
    want: dict[str, Any] = {}
    thrown, failed, seed = 0, 0, args.seed
    while thrown < args.faults:
        name = names[(seed - args.seed) % len(names)]
        count = min(args.per_run, args.faults - thrown)
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{name}-{seed}-"))
        if name not in want:
            want[name] = fault_free(name, folder / "fault-free", args.size)
        started = time.monotonic()
        the_plan = plan(seed, name, count, kinds)
        run = Logged(log, {"seed": seed, "workload": name})
        result = one_run(name, the_plan, seed, folder / "run", want[name], run.line, args.size)
        repeat = f"python -m tests.chaos --seed {seed} --workload {name} --faults {count} --per-run {count}"
        repeat += f" --kinds {args.kinds}" if args.kinds else ""
        repeat += f" --size {args.size}" if args.size else ""
        log(
            {
                "run": f"{name} {seed}",
                "faults": result.faults,
                "attempts": result.attempts,
                "rows": {part: table.num_rows for part, table in want[name].items()},
                "digest": result.digest,
                "fault_free": digest(want[name]),
                "seconds": round(time.monotonic() - started, 1),
                "sink": the_plan.sink,
                "config": the_plan.config,
                "wrong": result.wrong,
                "repeat": repeat,
            }
        )
        thrown += result.faults
        if result.wrong:
            failed += 1
            for part, table in want[name].items():
                pq.write_table(table, folder / f"fault-free {part}.parquet")
            print(f"FAILED: logs in {folder}; again with: {repeat}", file=sys.stderr, flush=True)
            if not result.faults:
                break
        else:
            shutil.rmtree(folder)
        seed += 1
    print(f"{thrown} faults, {failed} runs failed", file=sys.stderr)
    for kind, why in sorted(not_shown.items()):
        print(f"not shown: {kind}: {why}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
