"""Child processes, and what they leave behind."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from penstock_services.common.processes import SystemSpawner

#: Starts a process that outlives it, says which, and ends.
LEAVES = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
"""


async def test_what_a_leader_of_a_group_left_behind_ends_with_it(tmp_path: Path) -> None:
    spawner = SystemSpawner()
    with (tmp_path / "out").open("wb") as out:
        pid = await spawner.spawn(
            [sys.executable, "-c", LEAVES], dict(os.environ), stderr=out.fileno(), group=True
        )
    assert await spawner.wait(pid) == 0
    left = int((tmp_path / "out").read_text())
    assert os.getpgid(left) == pid
    ended = os.pidfd_open(left)
    try:
        spawner.kill_group(pid)
        # A pidfd becomes readable when its process has ended, whoever reaps it.
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        assert poll.poll(30_000)
    finally:
        os.close(ended)
    spawner.kill_group(pid)  # again: nothing is left, and nothing happens


async def test_a_process_that_is_gone_may_be_killed_again() -> None:
    spawner = SystemSpawner()
    pid = await spawner.spawn([sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ))
    spawner.kill(pid, signal.SIGKILL)
    assert await spawner.wait(pid) == -signal.SIGKILL
    spawner.kill(pid, signal.SIGKILL)
