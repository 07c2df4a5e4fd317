"""What the threads of this process do at the moment."""

from __future__ import annotations

import sys
import threading
import traceback


def thread_stacks() -> dict[str, str]:
    """``"<name> (<id>)"`` → its frames as text, the innermost last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        f"{names.get(ident, 'not of Python')} ({ident})": "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    }
