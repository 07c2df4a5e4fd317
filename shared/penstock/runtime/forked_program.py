"""What makes a forked process as if Python had been started for its program."""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from penstock.runtime.forking import STARTED_WITH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def as_a_program(
    name: str,
    fds: Sequence[int],
    *,
    variables: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> int:
    """Runs ``main()`` of the module ``name`` as if it were the program that Python was started for; returns its exit
    code. The process gets ``fds`` as its standard streams, the environment that the template was started with and
    ``variables``, ``arguments`` behind the program's name, and random numbers of its own."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(STARTED_WITH, **(variables or {}))
    importlib.invalidate_caches()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    code = 0
    module = importlib.import_module(name)
    sys.argv = [module.__file__ or name, *arguments]
    try:
        returned = module.main()
        code = returned if isinstance(returned, int) else 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else int(err.code is not None)
        if not isinstance(err.code, int | None):
            print(err.code, file=sys.stderr)  # noqa: T201
    except BaseException:
        code = 1
        traceback.print_exc()
    # As Python does at its end: threads that are no daemons end by themselves, then what asked to be called runs.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code
