"""A cluster in virtual time, from one seed: simulated processes, bus, leases, object store
and sockets behind the ports, with every fault that they can have.

``World``        virtual time, processes (crash, pause, clock jump), trace and digest
``SimLoop``      the event loop of one process
``SimBus``       request/reply and publish: delay, loss, repetition, cut-off, broker down
``SimLeases``    leases with expiry: down, wiped, answers lost
``SimStore``     object storage: errors before and after the write, slowness, listing lag
``FolderServer`` object storage in a folder: unsynced writes are lost with the power
``SimDisk``      files: unsynced writes are lost with the power
``SimNats``      a NATS server with JetStream, for the real client: killed, cut off, answers lost
``SimSocket``    byte streams between processes, which break with them
``virtual_time`` what reaches past its ports for a clock or for entropy gets the world's

Nothing here knows the services; ``docs/simulation.md`` says how they are run on it.
"""

from penstock.testing.simulation.bus import BusFaults, SimBus, SimTransport
from penstock.testing.simulation.disk import SimDisk
from penstock.testing.simulation.folder import FolderServer
from penstock.testing.simulation.intercept import virtual_time
from penstock.testing.simulation.leases import LeaseServer, SimLeases
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.nats_server import NatsFaults, SimNats
from penstock.testing.simulation.objects import ObjectServer, SimStore, StoreFaults
from penstock.testing.simulation.sockets import Listener, PacketChannel, SimSocket, socket_pair
from penstock.testing.simulation.world import Process, SimClock, Violation, World

__all__ = [
    "BusFaults",
    "FolderServer",
    "LeaseServer",
    "Listener",
    "NatsFaults",
    "ObjectServer",
    "PacketChannel",
    "Process",
    "SimBus",
    "SimClock",
    "SimDisk",
    "SimLeases",
    "SimLoop",
    "SimNats",
    "SimSocket",
    "SimStore",
    "SimTransport",
    "StoreFaults",
    "Violation",
    "World",
    "socket_pair",
    "virtual_time",
]
