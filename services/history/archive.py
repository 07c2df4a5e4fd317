"""The jobs of a cluster that have ended, as its object store keeps them. Nothing is written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.bus import Subjects
from penstock.errors import BrokerError, ObjectStoreError
from penstock.messages import layout
from penstock.messages.cluster import JobDetails
from penstock_services.dispatcher.active_jobs import ActiveJobs
from penstock_services.dispatcher.directory import JobDirectory
from penstock_services.dispatcher.logged import UnknownJobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.messages.resource_manager import ClusterOverview
    from penstock.ports import Handler, Store, Subscription


class Archive(JobDirectory):
    """A job directory without a cluster: it knows the jobs that have ended."""

    def __init__(self, store: Store) -> None:
        super().__init__(_NoBus(), Subjects("history"), ReadOnlyStore(store))

    async def details(self, job_id: str) -> JobDetails:
        """The details of a job that has ended. Raises UnknownJobError for any other."""
        try:
            return msgspec.json.decode(await self.store.get(layout.archive_key(job_id)), type=JobDetails)
        except KeyError:
            raise UnknownJobError(
                f"no job {job_id} has ended here",
                expected="the id of a job of GET /jobs",
                remedy="a job that has not ended is shown by a dispatcher of its cluster",
            ) from None

    async def active(self) -> ActiveJobs:
        """No job: those that have not ended are a cluster's."""
        return ActiveJobs([])

    async def cluster(self) -> ClusterOverview | None:
        """None: there is no cluster."""
        return None


class _NoBus:
    """A bus that nobody serves."""

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        raise _no_cluster(subject)

    async def publish(self, subject: str, data: bytes) -> None:
        raise _no_cluster(subject)

    async def serve(self, subject: str, handler: Handler, *, queue: str | None = None) -> Subscription:
        raise _no_cluster(subject)

    async def close(self) -> None:
        """Nothing is open."""


def _no_cluster(subject: str) -> BrokerError:
    return BrokerError(
        "the history server is connected to no cluster",
        expected="a question about a job that has ended",
        got=f"one for {subject}",
        remedy="ask a dispatcher of the cluster",
    )


class ReadOnlyStore:
    """A store that refuses to be changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, key: str) -> bytes:
        """See ``Store.get``."""
        return await self._store.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ``Store.get_range``."""
        return await self._store.get_range(key, start, length)

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """See ``Store.list``."""
        return await self._store.list(prefix)

    async def put(self, key: str, data: bytes) -> None:
        """Raises ObjectStoreError."""
        raise _read_only(key)

    async def create(self, key: str, data: bytes) -> bool:
        """Raises ObjectStoreError."""
        raise _read_only(key)

    async def delete(self, keys: Sequence[str]) -> None:
        """Raises ObjectStoreError."""
        raise _read_only(", ".join(keys))


def _read_only(key: str) -> ObjectStoreError:
    return ObjectStoreError(
        "the history server changes nothing in the object store", got=f"a change of {key}"
    )
