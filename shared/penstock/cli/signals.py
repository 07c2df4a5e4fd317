"""SIGTERM and SIGHUP raise SystemExit where the program stands, as Ctrl-C raises KeyboardInterrupt: so that what
was started is ended, and temporary folders go."""

from __future__ import annotations

import signal
import sys
import threading

#: Exit code → signal.
_LEAVING = {128 + number: number for number in (signal.SIGTERM, signal.SIGHUP)}
#: An exception that a finalizer swallowed is raised again after so long, outside of it.
_AGAIN_S = 0.02


def leave_on_signals() -> None:
    """Of a whole process: to be called once, on its main thread."""
    for number in _LEAVING.values():
        signal.signal(number, _leave)
    sys.unraisablehook = _unraisable


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised inside of a finalizer or a weak reference's callback; a signal that
    arrives just there would be lost."""
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
