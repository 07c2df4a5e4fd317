"""Flink SQL beside Penstock: the same query on the same cores in the same run, warm.

Flink's compiler needs some 20 million events of a query until its code is as fast as it gets
(q0: 1.26 M events/s over the first 6 million, 2.04 after 10). So a query runs in one JVM again
and again, and only the run after ``WARM_EVENTS`` counts.

Needed: the folder of the peers' bench (its queries and its Java source), an environment with
PyFlink, and jars. ``unavailable`` says what is missing.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.nexmark.report import Figure

#: The queries that Flink's suite and ours have in common.
QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q11", "q15", "q17", "q18", "q19", "q20", "q22")
WARM_EVENTS = 20_000_000
#: Events of one run from the generator. More would take q4 and q20, which keep bids on the heap,
#: to the end of it; fewer are over before they are measured.
EVENTS = 10_000_000
#: Those that are through 10 million in a few seconds.
LONGER = dict.fromkeys(("q0", "q1", "q2", "q3", "q8", "q22"), 20_000_000)

#: Environment variables: the folder of the peers' bench; that of its environments (one named
#: ``flink`` is needed); the jar that its ``flink/java/build.sh`` makes; more jars, with commas.
PEERS, VENVS, JAR, MORE_JARS = "PENSTOCK_PEERS", "PEERS_VENVS", "NEXMARK_JAR", "FLINK_JARS"


def unavailable(folder: Path | None) -> str | None:
    """Why Flink cannot run here, or None."""
    if folder is None:
        return f"no folder of the peers' bench given (--peers or {PEERS})"
    if not (folder / "flink" / "queries.py").exists():
        return f"{folder} has no flink/queries.py"
    if not python().exists():
        return f"no Python with apache-flink at {python()} (set {VENVS})"
    for jar in _jars():
        if not Path(jar).is_file():
            return (
                f"no jar at {jar!r} ({JAR}: what the peers' flink/java/build.sh makes; {MORE_JARS}: others)"
            )
    return None


def python() -> Path:
    """The Python with apache-flink."""
    return Path(os.environ.get(VENVS, "venv")).absolute() / "flink" / "bin" / "python"


def _jars() -> list[str]:
    return [os.environ.get(JAR, ""), *filter(None, os.environ.get(MORE_JARS, "").split(","))]


@dataclass(frozen=True)
class Flink:
    """``events``: of one run, None = by query; ``warm_events``: before the run that counts."""

    folder: Path
    parallelism: int
    rate: int
    events: int | None = None
    warm_events: int = WARM_EVENTS

    def generated(self, query: str) -> Figure:
        events = self.events or LONGER.get(query, EVENTS)
        options = {"connector": "nexmark-gen", "events": str(events), "rate": str(self.rate)}
        return self._run(query, "generator", options, events)

    def from_files(self, query: str, source: str, path: Path, events: int) -> Figure:
        """``source``: json or parquet."""
        options = {"connector": "filesystem", "format": source, "path": path.absolute().as_uri()}
        return self._run(query, source, options, events)

    def _run(self, query: str, source: str, options: Mapping[str, str], events: int) -> Figure:
        """RuntimeError when it fails."""
        warm = math.ceil(self.warm_events / events)
        argv = [str(python()), str(Path(__file__).with_name("flink_job.py")), query]
        argv += ["--peers", str(self.folder.absolute()), "--jars", ",".join(_jars())]
        argv += [
            "--source",
            json.dumps(options),
            "--runs",
            str(warm + 1),
            "--parallelism",
            str(self.parallelism),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        runs = [json.loads(x.removeprefix("RUN ")) for x in done.stdout.splitlines() if x.startswith("RUN ")]
        if done.returncode or len(runs) != warm + 1:
            raise RuntimeError(f"Flink failed at {query} from {source}:\n{done.stderr[-2000:]}")
        return Figure(
            engine="flink", query=query, source=source, events=events, warm_events=warm * events, **runs[-1]
        )  # fmt: skip
