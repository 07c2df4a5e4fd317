"""Resource providers: they start and stop the workers (task managers) of a cluster.

``penstock.providers.api`` is the port; ``open_provider`` finds a provider by its name.
"""

from penstock.providers.api import ResourceProvider, WorkerPhase, WorkerProfile
from penstock.providers.registry import PROVIDERS, open_provider

__all__ = ["PROVIDERS", "ResourceProvider", "WorkerPhase", "WorkerProfile", "open_provider"]
