"""The template of planners: a process that only imports modules, and forks planners.

``python -m penstock.api.planner_template <fd>``; ``fd`` is a SOCK_SEQPACKET socket on which the dispatcher
sends ``ForkPlanner`` with three descriptors and receives ``FromTemplate``. A planner that starts by itself
imports for most of a second of CPU time before it plans for some milliseconds.

A planner is as if it had been started by itself: the template imports nothing of a user's, so each planner
imports the program's modules anew; standard streams, environment, session and random numbers are its own. What
needs SQL or the DataStream API is imported with the first program of that kind. When a file has changed that the
template has imported, or a package was installed, the template forks no more (``TemplateStale``).
"""

from __future__ import annotations

import os

from penstock.runtime.forking import WITHOUT_THREADS, ForkServer, Stale, socket_of

os.environ.update(WITHOUT_THREADS)

import importlib
import importlib.util
import site
import sys
import time

from penstock.messages.forking import ForkPlanner
from penstock.runtime.forked_program import as_a_program
from penstock.sandbox.enter import enter

#: What planning any program imports.
PRELOAD = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "cloudpickle",
    "penstock.api.planner",
    "penstock.plan.physical",
)
#: What planning a program of a kind imports beside it.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "sql": ("penstock.sql.scripts", "penstock.spark.support"),
    "python": (
        "penstock.api.environment",
        "penstock.api.connectors",
        "penstock.compat.pyflink",
        "penstock.spark.support",
    ),
    "states": ("penstock.api.restore_check",),
}


class PlannerTemplate(ForkServer[ForkPlanner]):
    """Forks planners."""

    order_type = ForkPlanner
    descriptors = 3

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        #: Each file that is imported, and each folder of installed packages, with when it was written and its size.
        self._seen: dict[str, tuple[int, int] | None] = {
            folder: _stamp(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())
        }
        self._prepared: set[str] = set()
        self._see_modules()

    def name_of(self, order: ForkPlanner) -> str:
        return order.order

    def prepare(self, order: ForkPlanner) -> None:
        for path, stamp in self._seen.items():
            if _stamp(path) != stamp:
                raise Stale(path)
        if order.program in self._prepared:
            return
        for name in PROGRAMS.get(order.program, ()):
            importlib.import_module(name)
        if order.program == "python":
            _let_arrow_look_for_pandas()
        self._prepared.add(order.program)
        self._see_modules()

    def _see_modules(self) -> None:
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if path is not None and path not in self._seen:
                self._seen[path] = _stamp(path)

    def run(self, order: ForkPlanner, fds: list[int]) -> int:
        os.setsid()  # what the user's code starts can be ended with the planner
        if order.sandbox is not None:
            enter(order.sandbox)
        return as_a_program(order.module, fds, variables=order.variables)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _let_arrow_look_for_pandas() -> None:
    """pyarrow imports pandas, wherever it is installed, when it makes its first scalar: 0.3 s in each planner."""
    import pyarrow

    pyarrow.scalar(0)


def main(argv: list[str]) -> int:
    """The entry point of the process; returns its exit code."""
    sock = socket_of(argv)
    if sock is None:
        return 2
    started = time.perf_counter()
    for name in PRELOAD:
        importlib.import_module(name)
    PlannerTemplate(sock).serve((time.perf_counter() - started) * 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
