"""State of ten times what it may take, at bounded resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_BYTES = 16 << 20
#: A process grows by so many times the limit at most: what is counted, freed rows that still
#: lie between others, LevelDB's buffers, batches on their way, what the allocators keep.
FACTOR = 8
#: … and so many bytes of files are mapped into it, whatever their size.
MAPPED_BYTES = 256 << 20
#: Batches of 512 rows of 1.5 KiB that are all kept, ten times the limit; then some of old keys.
NEW, OLD = 220, 24
PROGRAM = Path(__file__).with_name("resident_memory.py")


def start(case: str, limit_bytes: int, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    arguments = [case, str(limit_bytes), str(folder), str(NEW), str(OLD)]
    return subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["aggregate", "deduplicate", "top-n", "window-top-n", "over", "join", "windows", "sessions", "process"],
)
def test_ten_times_the_limit(tmp_path: Path, case: str) -> None:
    bounded, unbounded = start(case, LIMIT_BYTES, tmp_path / "a"), start(case, 0, tmp_path / "b")
    try:
        found, expected = (json.loads(run.communicate()[0]) for run in (bounded, unbounded))
    finally:
        for run in (bounded, unbounded):
            run.kill()
            run.wait()
    assert found["digest"] == expected["digest"]
    assert found["growth_bytes"] < FACTOR * LIMIT_BYTES
    assert found["mapped_bytes"] < MAPPED_BYTES
    if case != "process":  # whose values lie in LevelDB with or without a limit
        assert found["keys_on_disk"] > 0
        assert expected["growth_bytes"] > 10 * LIMIT_BYTES
