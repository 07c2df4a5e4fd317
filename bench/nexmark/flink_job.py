"""Runs one Nexmark query on Flink SQL, again and again in one JVM. Started by ``flink.py`` with a
Python that has PyFlink; prints a JSON line for each run.

PyFlink only submits: all work is done in the JVM. A run's seconds are Flink's net run time,
its CPU seconds those of the JVM in that time (compiler and garbage collector included).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_SAMPLE_S = 0.02

CONFIG = {
    "pipeline.object-reuse": "true",
    "taskmanager.memory.managed.size": "1g",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
    "state.backend.type": "hashmap",
    "table.local-time-zone": "UTC",
    "rest.port": "0",
}


class Jvm(threading.Thread):
    """CPU seconds and resident memory of this process' children, sampled all the time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []
        self.peak_bytes = 0
        self._children = [
            p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(p) == os.getpid()
        ]

    def run(self) -> None:
        while True:
            cpu_s = resident = 0.0
            for pid in self._children:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                cpu_s += (int(fields[11]) + int(fields[12])) / _TICK
                resident += int(fields[21]) * _PAGE
            self.samples.append((time.monotonic(), cpu_s))
            self.peak_bytes = max(self.peak_bytes, int(resident))
            time.sleep(_SAMPLE_S)

    def cpu_s(self, since: float, until: float) -> float:
        inside = [cpu for at, cpu in self.samples if since <= at <= until]
        return inside[-1] - inside[0] if inside else 0.0


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:  # it has ended
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query")
    parser.add_argument("--peers", type=Path, required=True, help="folder with flink/queries.py")
    parser.add_argument("--jars", required=True, help="jars of sources and formats, with commas")
    parser.add_argument("--source", required=True, help="options of the source's table, as JSON")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--sinks", help="options of each run's sink, as JSON; default: blackhole")
    parser.add_argument("--key", default="", help="columns of the sink's primary key")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    queries = _module(args.peers / "flink" / "queries.py")
    env = _environment(args)
    jvm = Jvm()
    jvm.start()
    options = ",".join(f"'{key}' = '{value}'" for key, value in json.loads(args.source).items())
    columns = f"{queries.WIDE},\n{queries.COMPUTED_TIME}"
    env.execute_sql(f"CREATE TEMPORARY TABLE nexmark (\n{columns}\n) WITH ({options})")
    for view in queries.views():
        env.execute_sql(view)
    _, schema, select = queries.QUERIES[args.query]
    if args.key:
        schema += f", PRIMARY KEY ({args.key}) NOT ENFORCED"
    sinks = json.loads(args.sinks) if args.sinks else [{"connector": "blackhole"}] * args.runs
    for at, sink in enumerate(sinks):
        written = ",".join(f"'{key}' = '{value}'" for key, value in sink.items())
        env.execute_sql(f"CREATE TEMPORARY TABLE sink{at} ({schema}) WITH ({written})")
        result = env.execute_sql(f"INSERT INTO sink{at} {select}")
        result.wait()
        ended = time.monotonic()
        seconds = result.get_job_client().get_job_execution_result().result().get_net_runtime() / 1000
        used = {"seconds": seconds, "cpu_s": jvm.cpu_s(ended - seconds, ended), "peak_bytes": jvm.peak_bytes}
        print("RUN " + json.dumps(used), flush=True)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers_queries", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no Python module at {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _environment(args: argparse.Namespace) -> Any:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    config = Configuration()
    given = {
        **CONFIG,
        "parallelism.default": str(args.parallelism),
        "taskmanager.numberOfTaskSlots": str(args.parallelism),
        "pipeline.jars": ";".join(f"file://{os.path.abspath(jar)}" for jar in args.jars.split(",")),
        **dict(pair.split("=", 1) for pair in args.set),
    }
    for key, value in given.items():
        config.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
    return TableEnvironment.create(settings)


if __name__ == "__main__":
    main()
