"""The template of an embedded cluster's services: a process that only imports modules, and forks services.

``python -m penstock.runtime.service_template <fd>``; ``fd`` is a SOCK_SEQPACKET socket on which the cluster sends
``ForkService`` with three descriptors and receives ``FromTemplate``. Four services that start by themselves import
mostly the same, one after another for a second of CPU time.

A service's modules are imported with its first order, so the first service does not wait for what only the last
one needs. A service is as if it had been started by itself: it leads a process group, and its standard streams,
arguments and environment are its own. It ends when this process ends.
"""

from __future__ import annotations

import os

from penstock.runtime.forking import WITHOUT_THREADS, ForkServer, socket_of

os.environ.update(WITHOUT_THREADS)

import gc
import importlib
import sys
import time

from penstock.messages.forking import ForkService
from penstock.processes import name_process
from penstock.runtime.forked_program import as_a_program

#: What every service imports once it runs.
RUNNING = ("nats", "redis.asyncio", "penstock.store", "penstock.leases")


class ServiceTemplate(ForkServer[ForkService]):
    """Forks services."""

    order_type = ForkService
    descriptors = 3

    def name_of(self, order: ForkService) -> str:
        return order.order

    def prepare(self, order: ForkService) -> None:
        for name in (_program_of(order), *RUNNING):
            importlib.import_module(name)
        gc.collect()
        gc.freeze()

    def run(self, order: ForkService, fds: list[int]) -> int:
        os.setpgid(0, 0)  # a terminal's Ctrl-C reaches only the cluster, which ends its services in order
        name_process(order.package.rpartition(".")[2])
        return as_a_program(_program_of(order), fds, arguments=order.arguments)


def _program_of(order: ForkService) -> str:
    return f"{order.package}.__main__"


def main(argv: list[str]) -> int:
    """The entry point of the process; returns its exit code."""
    sock = socket_of(argv)
    if sock is None:
        return 2
    ServiceTemplate(sock).serve(time.process_time() * 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
