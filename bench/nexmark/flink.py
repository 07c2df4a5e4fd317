"""Flink's figures on Nexmark, and how to run Flink beside Penstock.

``RECORDED`` was measured with the peers' bench (``flink/run_sql.py``, suite ``flink``):
Flink 2.3.0 SQL, Java runtime, in-memory state, its generator in the same process, no
checkpoints, parallelism 2 on two cores of an AMD EPYC machine with 24 GiB, 10 million
events at 100,000 a second of event time, the second run in a warm JVM. Thousand events/s,
all kinds of events counted.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

CONDITIONS = (
    "Flink 2.3.0 SQL, parallelism 2, heap state, in-process generator, no checkpoints, warm JVM; recorded"
)
RECORDED: dict[str, int] = {
    "q0": 998, "q1": 766, "q2": 756, "q3": 1061, "q4": 307, "q5": 391, "q7": 268, "q8": 692, "q11": 450,
    "q15": 398, "q17": 391, "q18": 551, "q19": 271, "q20": 313, "q22": 869,
}  # fmt: skip

#: Folder of the peers' bench, and of its environments (one named ``flink`` is needed).
PEERS, VENVS = "PENSTOCK_PEERS", "PEERS_VENVS"


def unavailable(folder: Path | None) -> str | None:
    """Why Flink cannot run here, or None."""
    if folder is None:
        return f"no folder of the peers' bench given (--peers or {PEERS})"
    if not (folder / "flink" / "run_sql.py").exists():
        return f"{folder} has no flink/run_sql.py"
    if not _python().exists():
        return f"no Python with apache-flink at {_python()} (set {VENVS})"
    jar = os.environ.get("NEXMARK_JAR")
    if not jar or not Path(jar).exists():
        return "NEXMARK_JAR does not name the jar that the peers' flink/java/build.sh makes"
    return None


def _python() -> Path:
    return Path(os.environ.get(VENVS, "venv")) / "flink" / "bin" / "python"


def run(folder: Path, query: str, *, events: int) -> float:
    """Thousand events/s of the second of two runs in one JVM. RuntimeError when it fails."""
    script = folder / "flink" / "run_sql.py"
    argv = [str(_python()), str(script), query, "--events", str(events), "--repeat", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=script.parent)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise RuntimeError(f"Flink gave no result for {query}:\n{done.stderr[-2000:]}")
    return json.loads(results[-1].removeprefix("RESULT "))["events_per_s"] / 1000
