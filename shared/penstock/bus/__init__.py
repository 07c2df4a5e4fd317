"""Communication of processes: NATS subjects, typed requests, and an in-memory transport.

``subjects``  the subject scheme in one place
``envelope``  typed request, publish and serve over any ``penstock.ports.Transport``
``nats``      the transport over NATS
``memory``    the transport within one process, for tests and the simulation
"""

from penstock.bus.envelope import (
    NobodyServesError,
    RefusedError,
    decode,
    encode,
    publish,
    request,
    serve_typed,
)
from penstock.bus.memory import MemoryBus, MemoryTransport
from penstock.bus.subjects import Subjects, verb_of

__all__ = [
    "MemoryBus",
    "MemoryTransport",
    "NobodyServesError",
    "RefusedError",
    "Subjects",
    "decode",
    "encode",
    "publish",
    "request",
    "serve_typed",
    "verb_of",
]
