"""Memory and processor use of a process."""

from __future__ import annotations

import os
import time

from penstock_services.taskmanager.usage import Usage


def test_the_share_of_a_processor_is_that_since_the_reading_before() -> None:
    now = [0.0]
    usage = Usage(os.getpid(), lambda: now[0])
    first = usage.read()
    assert first["rss_bytes"] > 1_000_000
    assert "cpu_share" not in first
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    now[0] = 0.2
    assert "cpu_share" not in usage.read()  # too soon
    now[0] = 2.0
    assert 0.04 <= usage.read()["cpu_share"] <= 5.0


def test_a_process_that_has_ended_uses_nothing() -> None:
    assert Usage(2**22 + 1).read() == {}
