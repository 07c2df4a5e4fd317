"""From ``penstock sql -f`` to the first row of a small streaming query, embedded cluster.

Prints the whole, as a user sees it (a new process, its output a pipe), some times over;
then once the same steps in this process: when each was done, and how much CPU time every
process had used by then. On a busy machine the sum of CPU times is what to compare: two
cores can do no better than half of it.

    python -m bench.startup [--repeat 3]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_STARTED = time.perf_counter()

SQL = """
CREATE TABLE numbers (id BIGINT, v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100');
SELECT id, v FROM numbers WHERE id % 2 = 0;
"""


def first_row_s(script: Path) -> tuple[float, float]:
    """Seconds until the first row is printed, and until all is over after Ctrl-C."""
    started = time.perf_counter()
    argv = [sys.executable, "-m", "penstock.cli.main", "sql", "-f", str(script), "--format", "json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seen = time.perf_counter()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    if not line:
        raise SystemExit(f"no row came: {err}")
    return seen - started, time.perf_counter() - seen


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(f) for f in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def breakdown() -> None:
    """The steps of ``penstock sql`` one by one."""
    steps: list[tuple[str, float]] = []

    def done(what: str) -> None:
        steps.append((what, time.perf_counter() - _STARTED))

    from penstock.cli.sql import ClusterAccess

    done("command line imported")
    with ClusterAccess(None, slots=8) as access:
        access.prepare()
        done("processes started")
        import msgspec

        from penstock.sql.session import SqlSession

        done("SQL imported")
        session = SqlSession({"execution.engine": "auto"})
        (planned,) = [r.job for r in session.run_script(SQL) if r.job is not None]
        spec = {"name": "startup", "job_graph": msgspec.to_builtins(planned.job_graph)}
        done("planned")
        client = access.client
        done("cluster ready: all slots registered")
        job_id = client.submit(spec)
        done("job accepted")
        for chunks in client.results(job_id):
            if chunks:
                break
        done("first row")
        root = os.getpid()
        used = [(name_of(pid), cpu_s(pid)) for pid in (root, *descendants(root))]
        client.cancel(job_id)
    print("step                                       s      took")
    before = 0.0
    for what, at in steps:
        print(f"{what:<38} {at:6.2f}  {at - before:+6.2f}")
        before = at
    print("\nprocess                                CPU s until the first row")
    for name, seconds in used:
        print(f"{name:<38} {seconds:6.2f}")
    print(f"{'all':<38} {sum(s for _, s in used):6.2f}")


def name_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    if "-m" in words:
        return words[words.index("-m") + 1]
    return Path(words[0]).name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    breakdown()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "query.sql"
        script.write_text(SQL)
        for _ in range(args.repeat):
            row_s, stop_s = first_row_s(script)
            print(f"\nfirst row after {row_s:.2f} s; over {stop_s:.2f} s after Ctrl-C")


if __name__ == "__main__":
    main()
