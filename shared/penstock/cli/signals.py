"""SIGTERM and SIGHUP raise SystemExit in the main thread, as Ctrl-C raises KeyboardInterrupt.

So processes that the command has started are ended, and temporary folders are deleted.
"""

from __future__ import annotations

import signal
import sys
import threading

#: Exit code → signal.
_LEAVING = {128 + number: number for number in (signal.SIGTERM, signal.SIGHUP)}
#: Seconds after which an exception that a finalizer swallowed is raised again.
_AGAIN_S = 0.02


def leave_on_signals() -> None:
    """Install the handlers for the whole process. Call this once, in the main thread."""
    for number in _LEAVING.values():
        signal.signal(number, _leave)
    sys.unraisablehook = _unraisable


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Repeat a signal's exception: Python drops exceptions in finalizers and in callbacks of weak references."""
    if isinstance(lost.exc_value, SystemExit) and lost.exc_value.code in _LEAVING:
        number = _LEAVING[lost.exc_value.code]
    elif isinstance(lost.exc_value, KeyboardInterrupt):
        number = signal.SIGINT
    else:
        sys.__unraisablehook__(lost)
        return
    main = threading.main_thread().ident
    assert main is not None
    again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, number))
    again.daemon = True
    again.start()
