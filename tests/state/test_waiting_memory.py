"""Ten times as many rows as may be held wait, at bounded resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
#: A process grows by so many times the limit at most: what is counted, what is sorted and
#: written, runs that are merged, pairs on their way out, what the allocators keep.
FACTOR = 10
#: Limit, and batches of 128 rows of 6 KiB: ten times as much. Rows that come back one by one
#: take their time. (A limit is that much above what does not depend on it: LevelDB's buffers,
#: batches on their way. Of the temporal join they are most.)
CASES = {
    "sort": (8 * MIB, 120),
    "temporal-join": (12 * MIB, 180),
    "window-join": (8 * MIB, 120),
    "interval-join": (4 * MIB, 60),
}
PROGRAM = Path(__file__).with_name("waiting_memory.py")


def start(case: str, limit_bytes: int, folder: Path, batches: int) -> subprocess.Popen[str]:
    arguments = [case, str(limit_bytes), str(folder), str(batches)]
    return subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_ten_times_the_limit(tmp_path: Path, case: str) -> None:
    limit, batches = CASES[case]
    bounded, unbounded = start(case, limit, tmp_path / "a", batches), start(case, 0, tmp_path / "b", batches)
    try:
        found, expected = (json.loads(run.communicate()[0]) for run in (bounded, unbounded))
    finally:
        for run in (bounded, unbounded):
            run.kill()
            run.wait()
    assert found["digest"] == expected["digest"]
    assert found["on_disk"] > 2_000
    assert found["growth_bytes"] < FACTOR * limit < expected["growth_bytes"]
