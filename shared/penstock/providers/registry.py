"""Resource providers by name: Penstock's own and those of installed packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SpecError
from penstock.plugins import Register, function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.providers.api import ResourceProvider

    OpenProvider = Callable[[str, Mapping[str, str]], ResourceProvider]

#: Name → ``open(cluster id, configuration) -> ResourceProvider``.
PROVIDERS: Register[OpenProvider] = Register(
    "resource provider",
    "penstock.providers",
    builtin={"process": "penstock.providers.process:open_provider"},
    make=function,
    expected="a function open(cluster_id, config) that returns a penstock.providers.api.ResourceProvider",
    error=SpecError,
)


def open_provider(name: str, cluster_id: str, config: Mapping[str, str]) -> ResourceProvider:
    """The resource provider called ``name`` for one cluster.

    Args:
        name: A registered name or an import path.
        cluster_id: The cluster's name.
        config: The cluster's configuration.

    Raises:
        SpecError: The name is unknown.
    """
    return PROVIDERS.find(name)(cluster_id, config)
