"""The options of jobs in a cluster's configuration: the defaults of its jobs, as in Flink.

A job's own options (of its spec, SET, its program, ``-D``) take precedence. The dispatcher plans with the defaults,
clients and the SQL gateway ask it for them, and the job manager runs jobs with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.job import CATALOG_STORE_FOLDER, CATALOG_STORE_KIND, NATS_URL, REST_ADDRESS
from penstock.config.option import FAMILIES, OPTIONS
from penstock.redaction import hidden, without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

#: They name files of the services' machines, so clients on other machines cannot use them.
_OF_THE_MACHINE = (CATALOG_STORE_FOLDER.key, CATALOG_STORE_KIND.key)


def job_defaults(cluster: Mapping[str, str]) -> dict[str, str]:
    """The part of a cluster's configuration that its jobs inherit: options of jobs, without ``rest.address``, which
    names the cluster itself. Values that are secrets are included."""
    return {k: v for k, v in cluster.items() if _scope(k) == "job" and k != REST_ADDRESS.key}


def planning_defaults(cluster: Mapping[str, str]) -> dict[str, str]:
    """The defaults that planning takes into the stored plan. Secrets, and the address of the bus, are left out: the
    job manager adds them when the job runs."""
    return {
        k: v
        for k, v in job_defaults(cluster).items()
        if k != NATS_URL.key and not hidden(k, v) and without_credentials(v) == v
    }


def client_defaults(cluster: Mapping[str, str]) -> dict[str, str]:
    """The defaults for a client that plans on a machine of its own."""
    return {k: v for k, v in planning_defaults(cluster).items() if k not in _OF_THE_MACHINE}


def _scope(key: str) -> str | None:
    of = OPTIONS.get(key) or next((f for f in FAMILIES if key.startswith(f.prefix)), None)
    return None if of is None else of.scope
