"""The blocking frame, read from what a slot's watchdog writes."""

from __future__ import annotations

from types import SimpleNamespace

import structlog

from penstock_services.taskmanager.stalls import STALLED_MS, blocking_frame, look_for_stall

_OURS = """  File "/x/shared/penstock/operators/python.py", line 72 in _results
  File "/x/shared/penstock/runtime/slot.py", line 470 in main
"""
_HELPER = """Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 81 in _worker

"""


def _dump(*frames: str, helper: str = "") -> str:
    head = "Timeout (0:00:05)!\n" + helper + "Thread 0x00007ffb011d4b80 (most recent call first):\n"
    return head + "".join(f"  File {f}\n" for f in frames) + _OURS


def test_the_users_innermost_frame() -> None:
    assert blocking_frame("said before\n" + _dump('"job.py", line 5 in f')) == 'File "job.py", line 5 in f'


def test_frames_of_libraries_are_passed_over() -> None:
    log = _dump(
        '"/v/lib/python3.11/site-packages/requests/api.py", line 9 in get', '"job.py", line 7 in fetch'
    )
    assert blocking_frame(log) == 'File "job.py", line 7 in fetch'


def test_the_thread_that_runs_the_slot_is_meant() -> None:
    log = _dump('"job.py", line 5 in f', helper=_HELPER)
    assert blocking_frame(log) == 'File "job.py", line 5 in f'


def test_the_newest_dump_counts() -> None:
    log = _dump('"job.py", line 5 in f') + "between\n" + _dump('"job.py", line 8 in g')
    assert blocking_frame(log) == 'File "job.py", line 8 in g'


def test_without_a_dump_nothing_is_said() -> None:
    assert blocking_frame("a user's print\n") is None


class Slot:
    """A slot process as ``look_for_stall`` sees it."""

    stalled, stalled_in, pid = False, None, 7
    deploy = SimpleNamespace(allocation_id="a", job_id="j", tasks=())

    def __init__(self) -> None:
        self.silent, self.log = 0.0, ""

    def silent_ms(self) -> float:
        return self.silent

    async def log_tail(self, _: int) -> str:
        return self.log


async def test_a_traceback_that_comes_after_the_silence_is_noticed_is_told_too() -> None:
    """Once, like everything else of a stall."""
    slot, told = Slot(), []
    relay = SimpleNamespace(tell=lambda message: told.append((message.stalled, message.frame)))
    log = structlog.get_logger()
    dump = _dump('"job.py", line 5 in f')
    for silent, written in [(0, ""), (STALLED_MS + 1, ""), (STALLED_MS + 2, ""), (STALLED_MS + 3, dump), (STALLED_MS + 4, dump), (1, dump), (2, dump)]:  # fmt: skip
        slot.silent, slot.log = silent, written
        await look_for_stall(slot, relay, log)  # type: ignore[arg-type]
    assert told == [(True, None), (True, 'File "job.py", line 5 in f'), (False, None)]
