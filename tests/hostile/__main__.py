"""``python -m tests.hostile --minutes 60 --seed 1``: hostile messages on REST and on the bus of a real cluster.

It prints each finding when it is made, and what was sent at the end. The exit code is 1 if something was found: an
answer of 5xx, an internal error, an unanswered request, a held connection, a process that ended, a complaint in a log,
a job that stopped, descriptors, threads or memory that grew."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from penstock.embedded import EmbeddedCluster
from tests.hostile.run import CONFIG, Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    with EmbeddedCluster(taskmanagers=2, slots=4, data_dir=folder, config=CONFIG, on_event=print) as cluster:
        report = asyncio.run(Run(cluster, args.minutes, args.seed).run())
    print(
        ", ".join(f"{count} {what}" for what, count in report.sent.items()),
        f"{len(report.found)} findings",
        sep="; ",
    )
    if not report.found:
        shutil.rmtree(folder)
        return 0
    print(f"logs: {folder}/log", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
