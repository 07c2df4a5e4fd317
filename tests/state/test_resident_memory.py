"""State of ten times what it may take, at bounded resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: What a task may hold; a case of ``HALF`` holds half of it in ``make test``, and all of it in ``make soak``.
LIMIT_BYTES = 16 << 20
CASES = [
    "aggregate", "deduplicate", "top-n", "window-top-n", "over", "join", "windows", "sessions", "process",
    "python-windows",
]  # fmt: skip
#: Whose process grows by far less than it may then too: some of it does not depend on the limit.
HALF = ["process"]
#: The cases whose values lie in LevelDB.
LEVELDB = {"process", "python-windows"}
#: One for each way to keep state: rows by slot, rows by key, runs of windows, keys of LevelDB (``HALF``). The others keep
#: theirs as one of these does, and are run in ``make soak``. ``make test`` runs the half, ``make test-long`` the others of
#: these (tests/long.py).
COMMON = {"aggregate", "join", "windows"}
#: A process grows by so many times the limit at most: what is counted, freed rows that still
#: lie between others, LevelDB's buffers, batches on their way, what the allocators keep.
FACTOR = 8
#: … and so many bytes of files are mapped into it, whatever their size.
MAPPED_BYTES = 256 << 20
#: Batches of 512 rows of 1.5 KiB that are all kept, ten times the limit; then some of old keys.
NEW, OLD = 220, 24
PROGRAM = Path(__file__).with_name("resident_memory.py")


def start(case: str, limit_bytes: int, share: int, folder: Path) -> subprocess.Popen[str]:
    """With a ``share``th of the batches."""
    folder.mkdir()
    arguments = [case, str(limit_bytes), str(folder), str(NEW // share), str(OLD // share)]
    return subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "share"),
    [
        *(pytest.param(case, 2, id=f"{case}-half") for case in HALF),
        *(pytest.param(c, 1, id=c, marks=[] if c in COMMON else [pytest.mark.soak]) for c in CASES),
    ],
)
def test_ten_times_the_limit(tmp_path: Path, case: str, share: int) -> None:
    limit_bytes = LIMIT_BYTES // share
    bounded = start(case, limit_bytes, share, tmp_path / "a")
    unbounded = start(case, 0, share, tmp_path / "b")
    try:
        found, expected = (json.loads(run.communicate()[0]) for run in (bounded, unbounded))
    finally:
        for run in (bounded, unbounded):
            run.kill()
            run.wait()
    assert found["digest"] == expected["digest"]
    assert found["growth_bytes"] < FACTOR * limit_bytes
    assert found["mapped_bytes"] < MAPPED_BYTES
    if case not in LEVELDB:  # whose values lie in LevelDB with or without a limit
        assert found["keys_on_disk"] > 0
        assert expected["growth_bytes"] > 10 * limit_bytes
