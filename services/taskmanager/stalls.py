"""Detects a slot whose step does not end: the slot is silent, and the traceback that its watchdog writes into
its log shows the place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.messages.slot import SlotStalled

if TYPE_CHECKING:
    from penstock_services.taskmanager.relay import Relay
    from penstock_services.taskmanager.slot import SlotProcess

#: A slot that is silent for this long counts as stalled. It reports metrics every second, and writes its own
#: traceback after 5 s without progress.
STALLED_MS = 7_000
#: Bytes at the end of a log in which a slot's own traceback is looked for.
STALL_LOG_BYTES = 16_000

_DUMP = re.compile(r"^Timeout \(\d", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x\w+.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
#: Frames of libraries are skipped: the user can change the code that calls them.
_LIBRARY = re.compile(r"/(site-packages|lib/python3\.\d+)/|<frozen ")


def blocking_frame(log: str) -> str | None:
    """``File "job.py", line 5 in f``: the data thread's innermost frame outside of libraries, in the newest
    dump. None without a dump."""
    starts = [m.start() for m in _DUMP.finditer(log)]
    if not starts:
        return None
    for thread in reversed(_THREAD.split(log[starts[-1] :])):
        # The step runs in the thread that runs the slot.
        if "penstock/runtime/slot.py" not in thread and len(_THREAD.findall(log[starts[-1] :])) > 1:
            continue
        frames = list(_FRAME.finditer(thread))
        if not frames:
            continue
        own = next((f for f in frames if not _LIBRARY.search(f["file"])), frames[0])
        return f'File "{own["file"]}", line {own["line"]} in {own["name"]}'
    return None


async def look_for_stall(process: SlotProcess, relay: Relay, log: Any) -> None:
    """Tells the master and the log which slot is silent because its step does not end, and where. (The slot
    writes its traceback into its log after some seconds. If that comes after the silence was noticed, the
    master is told again.)"""
    stalled = process.silent_ms() > STALLED_MS
    if not stalled and not process.stalled:
        return
    log_ends = await process.log_tail(STALL_LOG_BYTES) if stalled else ""
    frame = blocking_frame(log_ends)
    if stalled and process.stalled and frame == process.stalled_in:
        return
    process.stalled, process.stalled_in = stalled, frame
    deploy = process.deploy
    # Not put(): it waits, and a full relay means that the master hears enough.
    relay.tell(SlotStalled(allocation_id=deploy.allocation_id, stalled=stalled, frame=frame))
    if not stalled:
        log.warning("slot_resumed", allocation_id=deploy.allocation_id)
        return
    log.error(
        "slot_stalled",
        job_id=deploy.job_id,
        allocation_id=deploy.allocation_id,
        slot_pid=process.pid,
        tasks=", ".join(f"{t.vertex_id}:{t.subtask_index}" for t in deploy.tasks),
        frame=frame,
        log_ends=log_ends[-2_000:],
    )
