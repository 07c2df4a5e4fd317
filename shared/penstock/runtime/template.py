"""The template of slots: a process that only imports modules, and forks slots.

``python -m penstock.runtime.template <fd>``; ``fd`` is a SOCK_SEQPACKET socket on which the task manager
sends ``ForkSlot`` with two descriptors and receives ``FromTemplate``. ``forking`` has the loop.
"""

from __future__ import annotations

import os

from penstock.runtime.forking import WITHOUT_THREADS, ForkServer, modules_of, socket_of

os.environ.update(WITHOUT_THREADS)
# By default Arrow gives memory back after 10 ms, and every batch then pays for fresh pages: a fifth of the
# CPU time of jobs with much state. Set before Arrow is imported.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")

import importlib
import socket
import sys
import time
from pathlib import Path

from penstock.messages.slot import ForkSlot
from penstock.runtime.malloc import keep_freed_memory
from penstock.runtime.output_files import OutputFiles
from penstock.runtime.pandas_probe import probe_without_pandas
from penstock.sandbox.enter import enter

#: Modules imported before the first fork, so that slots share them. Polars is not among them, because its
#: import starts a thread; a function that uses Polars imports it in the slot.
PRELOAD = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "uvloop",
    "obstore",
    "obstore.store",
    "penstock.runtime.slot",
    "penstock.functions.evaluate",
)
PRELOAD_PACKAGES = (
    "penstock.runtime",
    "penstock.functions",
    "penstock.operators",
    "penstock.columnar",
    "penstock.state",
    "penstock.snapshots",
)
#: Modules imported one by one while no slot is requested. A slot that is forked earlier imports the ones that
#: its job needs.
PRELOAD_LATER = (
    "cloudpickle",
    "zoneinfo",
    "plyvel",
    "nats",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.parquet",
    "pyarrow.dataset",
)
PRELOAD_LATER_PACKAGES = ("penstock.connectors", "penstock.formats")


def preload() -> None:
    """Imports what slots need, and does nothing else."""
    for name in PRELOAD:
        importlib.import_module(name)
        if name == "pyarrow":
            probe_without_pandas()
    for package in PRELOAD_PACKAGES:
        for name in modules_of(package, besides=("penstock.runtime.template",)):
            importlib.import_module(name)


class Template(ForkServer[ForkSlot]):
    """Forks slots."""

    order_type = ForkSlot
    descriptors = 2

    def name_of(self, order: ForkSlot) -> str:
        return order.allocation_id

    def run(self, order: ForkSlot, fds: list[int]) -> int:
        OutputFiles(Path(order.log_path), order.log_max_bytes, order.log_max_files).take_over()
        Path(order.local_dir).mkdir(parents=True, exist_ok=True)
        if order.sandbox is not None:
            # Before the slot starts a thread and loads a module of a user's. An error ends the process.
            enter(order.sandbox)
        from penstock.runtime import slot

        control, fd_channel = (socket.socket(fileno=os.dup(fd)) for fd in fds)
        for fd in fds:
            os.close(fd)
        return slot.main(control, fd_channel, order.allocation_id, order.local_dir)


def main(argv: list[str]) -> int:
    """The entry point of the process; returns its exit code."""
    sock = socket_of(argv)
    if sock is None:
        return 2
    keep_freed_memory()
    started = time.perf_counter()
    preload()
    later = (*PRELOAD_LATER, *(f"{package}.*" for package in PRELOAD_LATER_PACKAGES))
    Template(sock, later).serve((time.perf_counter() - started) * 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
