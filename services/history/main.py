"""The process of the history server. It needs the cluster's object store, and nothing else of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import config as conf
from penstock.errors import SpecError
from penstock.store import open_store
from penstock_services.common.alone import run_alone
from penstock_services.common.clock import SystemClock
from penstock_services.common.http_serving import bind, serving, shown_url
from penstock_services.common.main import storage_options
from penstock_services.common.security.front_door import front_door
from penstock_services.dispatcher.checkpoint_api import CheckpointApi
from penstock_services.dispatcher.dead_letters import DeadLetters
from penstock_services.dispatcher.identity_api import IdentityApi
from penstock_services.dispatcher.job_api import JobApi
from penstock_services.dispatcher.live_api import LiveApi
from penstock_services.dispatcher.metrics_api import MetricsApi
from penstock_services.dispatcher.rest import application, in_order
from penstock_services.dispatcher.results import Results
from penstock_services.dispatcher.vertex_api import VertexApi
from penstock_services.dispatcher.why_api import WhyApi
from penstock_services.history.archive import Archive
from penstock_services.history.overview import ArchiveOverview

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    import structlog

    from penstock.ports import Clock, Store
    from penstock_services.dispatcher.endpoint import Endpoint

#: Endpoints of a job that change something, although they are GETs, or that need the job's cluster.
_NEEDS_CLUSTER = frozenset(
    {"/jobs/{job}/yarn-cancel", "/jobs/{job}/results", "/jobs/{job}/jobmanager/config"}
)


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; the exit code. ``argv``: ``--config FILE``, ``-D key=value``."""
    return run_alone("history", "the history server", argv, _serve)


def endpoints(store: Store, clock: Clock, cluster: str) -> list[Endpoint]:
    """What a history server answers: everything that is read about jobs that have ended."""
    archive = Archive(store)
    nobody: object = None
    letters = DeadLetters(archive)
    jobs = JobApi(archive, nobody, Results(archive.store, archive, clock), clock, {}, letters)  # type: ignore[arg-type]
    why = WhyApi(archive, clock)
    apis = (MetricsApi(archive, clock), jobs, CheckpointApi(archive, {}), VertexApi(archive, clock), why)
    found = [endpoint for api in apis for endpoint in api.endpoints()]
    about_jobs = [
        e for e in found
        if e.method == "GET" and e.path.startswith("/jobs") and e.path not in _NEEDS_CLUSTER
        and "{triggerid}" not in e.path.lower()
    ]  # fmt: skip
    others = (ArchiveOverview(archive, cluster), LiveApi(archive, why, clock), IdentityApi())
    return in_order([*(endpoint for api in others for endpoint in api.endpoints()), *about_jobs])


async def _serve(
    config: Mapping[str, str], log: structlog.stdlib.BoundLogger, stopping: asyncio.Event
) -> None:
    url = conf.HISTORY_ARCHIVE.read(config) or conf.STORAGE_URL.read(config)
    if not url:
        raise SpecError(
            f"no object store is configured ({conf.HISTORY_ARCHIVE.key}, {conf.STORAGE_URL.key})",
            expected="the cluster's: file:///folder or s3://bucket/prefix",
            remedy=f"-D {conf.STORAGE_URL.key}=URL, as the cluster's services have it",
        )
    host, port = conf.HISTORY_BIND.read(config), conf.HISTORY_PORT.read(config)
    door = front_door(config, host, conf.HISTORY_BIND.key)
    listener = bind(host, port, conf.HISTORY_BIND.key, conf.HISTORY_PORT.key)
    store = open_store(url, storage_options(config))
    served = endpoints(store, SystemClock(), conf.CLUSTER_ID.read(config))
    app = application(served, door)
    rest = shown_url(host, listener, door.tls)
    async with serving(app, listener, stopping, door.tls):
        log.info("history_ready", rest=rest, archive=url)
    log.info("history_stopped")
