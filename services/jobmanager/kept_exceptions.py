"""Keeps a job's exceptions across a change of master. Each master writes the whole short history below its
own epoch. The next master, or REST while no master leads the job, reads the newest.

No decision depends on these objects: without them the history starts empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.log_events import EventLog
from penstock.messages.layout import exceptions_key, exceptions_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Store

_log = EventLog("penstock.jobmanager")


def encoded(entries: Sequence[dict[str, Any]]) -> bytes:
    """The history as it is stored."""
    return msgspec.json.encode(list(entries))


async def kept_exceptions(store: Store, job_id: str) -> list[dict[str, Any]]:
    """The newest stored history, newest failure first; empty if there is none."""
    prefix = exceptions_prefix(job_id)
    epochs = [key.removeprefix(prefix) for key, _ in await store.list(prefix)]
    newest = max((int(epoch) for epoch in epochs if epoch.isdigit()), default=None)
    if newest is None:
        return []
    try:
        found = msgspec.json.decode(
            await store.get(exceptions_key(job_id, newest)), type=list[dict[str, Any]]
        )
    except KeyError:
        return []  # the job has ended meanwhile, and its archive holds the exceptions
    except msgspec.MsgspecError as err:
        _log.warning("exceptions_not_read", job_id=job_id, error=err)
        return []
    return found
