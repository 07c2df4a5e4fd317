"""Asks the leading resource manager for all task managers, page by page: a thousand of them fit into no one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.bus import request
from penstock.errors import BrokerError
from penstock.messages.resource_manager import ClusterOverview, RequestClusterOverview

if TYPE_CHECKING:
    from penstock.bus import Subjects
    from penstock.ports import Transport


async def cluster_overview(transport: Transport, subjects: Subjects, **options: Any) -> ClusterOverview:
    """The cluster with all task managers. ``options``: those of ``request``, for each page.

    Raises:
        BrokerError: No resource manager answers, or another one began to lead meanwhile.
    """
    page = await _page(transport, subjects, "", options)
    managers = page.taskmanagers
    while page.more:
        epoch, page = page.epoch, await _page(transport, subjects, managers[-1].id, options)
        if page.epoch != epoch:
            raise BrokerError("another resource manager began to lead", remedy="ask again")
        managers += page.taskmanagers
    return msgspec.structs.replace(page, taskmanagers=managers)


async def cluster_totals(transport: Transport, subjects: Subjects, **options: Any) -> ClusterOverview:
    """The cluster without its task managers. Raises BrokerError if no resource manager answers."""
    return await _page(transport, subjects, None, options)


async def _page(
    transport: Transport, subjects: Subjects, after: str | None, options: dict[str, Any]
) -> ClusterOverview:
    message = RequestClusterOverview(after=after)
    subject = subjects.to_resourcemanager(message)
    page: ClusterOverview = await request(transport, subject, message, ClusterOverview, **options)
    # A resource manager of a version before ``count`` sends all task managers in one page.
    return msgspec.structs.replace(page, count=max(page.count, len(page.taskmanagers)))
