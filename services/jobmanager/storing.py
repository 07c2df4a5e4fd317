"""Performs the decisions of a job master on its log and in the object store. It decides nothing itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import FencedError, ObjectStoreError, PenstockError
from penstock.jobgraph.graph import decode_job_graph
from penstock.messages import layout
from penstock.messages.cluster import JobAccepted
from penstock.plan.compiled import PLAN_NAME, encode_plan
from penstock.snapshots.manifest import encode_manifest, read_manifest, self_contained
from penstock.store import copy_object
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.kept_exceptions import encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Clock, Store
    from penstock.snapshots.manifest import CheckpointManifest
    from penstock.store import DecisionLog

#: How long writing the manifest of a checkpoint is tried.
STORE_DEADLINE_S = 30.0
#: A folder for savepoints must accept a small object in this time.
PROBE_DEADLINE_S = 10.0
#: How many objects of a savepoint are copied at the same time.
COPIES = 4
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


class Storing:
    """The log and the objects of one job, for the master with ``epoch``."""

    def __init__(
        self, *, job_id: str, epoch: int, store: Store, log: DecisionLog, clock: Clock, logger: Any
    ) -> None:
        self._job_id = job_id
        self._epoch = epoch
        self._store = store
        self._log = log
        self._clock = clock
        self._logger = logger
        self._appending = asyncio.Lock()
        self._keeping = asyncio.Lock()
        #: The exceptions to write. None: nothing to write.
        self._exceptions: tuple[dict[str, Any], ...] | None = None

    async def _until_done(self, call: Callable[[], Awaitable[Any]], deadline_s: float | None) -> Any:
        """Repeats a request while the store fails. Raises ObjectStoreError after ``deadline_s``."""
        until = None if deadline_s is None else self._clock.monotonic_ms() + deadline_s * 1000
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await call()
            except ObjectStoreError as err:
                if until is not None and self._clock.monotonic_ms() >= until:
                    raise
                self._logger.warning("store_call_retried", job_id=self._job_id, error=err.message)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def append(self, entry: Any) -> fx.Event:
        """Appends an entry, and repeats that without end: a failed try may have written the entry, so it
        cannot be given up."""
        async with self._appending:
            try:
                number = await self._until_done(lambda: self._log.append(entry), None)
            except FencedError as err:
                return fx.Deposed(err.message)
        self._logger.info("decision_logged", job_id=self._job_id, n=number, entry=type(entry).__name__)
        return fx.LogAppended(entry, number)

    async def store_manifest(self, effect: fx.StoreManifest) -> fx.Event:
        """Writes a manifest; of a savepoint also a copy of all its objects."""
        data = encode_manifest(effect.manifest)
        checkpoint_id = effect.manifest.checkpoint_id
        try:
            if effect.savepoint is not None:
                await self._copy_savepoint(effect.savepoint, effect.manifest)
            await self._until_done(lambda: self._store.put(effect.key, data), STORE_DEADLINE_S)
        except KeyError as err:
            return fx.ManifestNotStored(checkpoint_id, f"an object is gone: {err}")
        except PenstockError as err:
            return fx.ManifestNotStored(checkpoint_id, f"could not be stored: {err.message}")
        return fx.ManifestStored(checkpoint_id)

    async def probe_savepoint(self, trigger_id: str, directory: str) -> fx.Event:
        """Writes a small object to the folder of a savepoint, so that an unusable folder is found before
        every task writes its state."""
        key = f"{layout.located(directory).rstrip('/')}/.probe-{trigger_id}"
        try:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                await self._store.put(key, b"")
                await self._store.delete([key])
        except TimeoutError:
            problem = f"no answer for {PROBE_DEADLINE_S:g} s"
        except PenstockError as err:
            # The problem as one sentence. For a folder the system's own reason is enough.
            system = err.__cause__.strerror if isinstance(err.__cause__, OSError) else None
            problem = system or (f"{err.message} ({err.got})" if err.got else err.message)
        else:
            return fx.SavepointProbed(trigger_id)
        return fx.SavepointProbed(trigger_id, f"a savepoint cannot be written to {directory}: {problem}")

    async def keep_statistics(self, effect: fx.KeepStatistics) -> None:
        """Writes the counts of checkpoints, so that the next master continues them."""
        try:
            await self._store.put(effect.key, msgspec.json.encode(effect.statistics))
        except ObjectStoreError as err:
            self._logger.warning("statistics_not_stored", job_id=self._job_id, error=err.message)

    async def keep_exceptions(self, entries: tuple[dict[str, Any], ...]) -> None:
        """Writes the exceptions. The newest are written last, in whatever order the effects run."""
        self._exceptions = entries
        async with self._keeping:
            if self._exceptions is None:
                return  # the write before has written this too
            entries, self._exceptions = self._exceptions, None
            try:
                await self._store.put(layout.exceptions_key(self._job_id, self._epoch), encoded(entries))
            except ObjectStoreError as err:
                self._logger.warning("exceptions_not_stored", job_id=self._job_id, error=err.message)

    async def _copy_savepoint(self, folder: str, manifest: CheckpointManifest) -> None:
        """Copies all objects first, and writes the manifest that names them last: a folder with a manifest is
        complete."""
        own, names = self_contained(manifest)
        limit = asyncio.Semaphore(COPIES)

        async def copy(key: str, name: str) -> None:
            async with limit:
                await self._until_done(
                    lambda: copy_object(self._store, key, f"{folder}/{name}"), STORE_DEADLINE_S
                )

        await asyncio.gather(*(copy(key, name) for key, name in names.items()))
        await self._until_done(lambda: self._store_plan(folder), STORE_DEADLINE_S)
        data = encode_manifest(own)
        await self._until_done(lambda: self._store.put(f"{folder}/manifest", data), STORE_DEADLINE_S)

    async def _store_plan(self, folder: str) -> None:
        """Stores the job's graph as a compiled plan, with the uids of its state, so that the savepoint can
        be started without the program that it was taken from."""
        accepted = await self._log.first()
        assert isinstance(accepted, JobAccepted)
        graph = decode_job_graph(await self._store.get(accepted.job_graph_key))
        plan = await asyncio.to_thread(encode_plan, graph)
        await self._store.put(f"{folder}/{PLAN_NAME}", plan)

    async def load_manifest(self, key: str) -> fx.Event:
        """Reads a manifest, with all that it names."""
        try:
            manifest = await self._until_done(lambda: read_manifest(self._store, key), STORE_DEADLINE_S)
        except PenstockError as err:
            return fx.ManifestUnreadable(key, err.to_dict())
        return fx.ManifestLoaded(key, manifest)

    async def delete_as_leader(self, keys: frozenset[str]) -> fx.Event | None:
        """Deletes objects only as leader. A master that was replaced, and does not know it yet, still
        receives the reports of tasks. The tasks of its successor write after the LeaderEpoch entry, so
        reading the log now tells whether an object may be theirs."""
        async with self._appending:
            try:
                await self._log.read()
                self._log.check()
            except FencedError as err:
                return fx.Deposed(err.message)
            except ObjectStoreError as err:
                self._logger.warning("objects_not_deleted", job_id=self._job_id, error=err.message)
                return None
        await self._delete(keys)
        return None

    async def _delete(self, keys: frozenset[str]) -> None:
        try:
            await self._store.delete(sorted(keys))
        except ObjectStoreError as err:
            self._logger.warning(
                "objects_not_deleted", job_id=self._job_id, keys=len(keys), error=err.message
            )

    async def _delete_below(self, prefix: str, keep: frozenset[str] = frozenset()) -> None:
        try:
            keys = frozenset(key for key, _ in await self._store.list(prefix)) - keep
        except ObjectStoreError as err:
            self._logger.warning("objects_not_deleted", job_id=self._job_id, error=err.message)
            return
        if keys:
            await self._delete(keys)

    async def archive(self, effect: fx.Archive) -> fx.Event:
        """Archives an ended job, and deletes what only a running one needs."""
        await archive(self._store, effect.details, self._until_done)
        for prefix in effect.delete_prefixes:
            await self._delete_below(prefix, effect.keep)
        await self._delete_below(f"{layout.job_prefix(self._job_id)}deploy/")
        await self._delete_below(layout.exceptions_prefix(self._job_id))
        return fx.Archived()


async def archive(store: Store, details: Any, until_done: Any = None) -> None:
    """Stores the details of an ended job, and removes the job from the list of active ones."""
    job_id = details.job_id

    async def write() -> None:
        await store.put(layout.archive_key(job_id), msgspec.json.encode(details))
        await store.put(layout.ended_key(job_id), msgspec.json.encode(details.overview()))
        await store.delete([layout.active_key(job_id)])

    await (until_done(write, None) if until_done else write())
