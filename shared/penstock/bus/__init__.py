"""How processes speak: NATS subjects, typed requests, an in-memory double.

``subjects``  the subject scheme in one place
``envelope``  typed request, publish and serve over any ``Transport``
``nats``      the transport on NATS
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
