"""Where a slot hangs: read from the traceback that its watchdog wrote into its log. Pure."""

from __future__ import annotations

import re

_DUMP = re.compile(r"^Timeout \(\d", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x\w+.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
#: Frames of libraries are passed over: what the user can change is what calls them.
_LIBRARY = re.compile(r"/(site-packages|lib/python3\.\d+)/|<frozen ")


def blocking_frame(log: str) -> str | None:
    """``File "job.py", line 5 in f``: of the newest dump, the data thread's innermost frame
    that is no library's. None without a dump."""
    starts = [m.start() for m in _DUMP.finditer(log)]
    if not starts:
        return None
    for thread in reversed(_THREAD.split(log[starts[-1] :])):
        # The thread that runs the slot is the one to blame.
        if "penstock/runtime/slot.py" not in thread and len(_THREAD.findall(log[starts[-1] :])) > 1:
            continue
        frames = list(_FRAME.finditer(thread))
        if not frames:
            continue
        own = next((f for f in frames if not _LIBRARY.search(f["file"])), frames[0])
        return f'File "{own["file"]}", line {own["line"]} in {own["name"]}'
    return None
