"""The conformance kit of resource providers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from penstock.providers.api import WorkerPhase, WorkerProfile
from penstock.testing.conformance.base import Conformance

if TYPE_CHECKING:
    from penstock.providers.api import ResourceProvider

_PAUSE_S = 0.01


class ProviderConformance(Conformance):
    """Checks a resource provider: it is level-triggered and idempotent, starts at most one worker for each id
    ever, and its workers outlive it.

    The author gives ``open`` (a new client; all clients see the same workers), ``instances`` (the number of
    workers that really run under an id, found without the provider), ``end_worker`` (a worker dies by itself)
    and ``clean``.
    """

    profile = WorkerProfile(slots=1)

    async def open(self, cluster_id: str = "kit") -> ResourceProvider:
        """The provider of the cluster ``cluster_id``. A second call gives the provider as another process has
        it, with the same workers."""
        raise NotImplementedError

    async def instances(self, worker_id: str, cluster_id: str = "kit") -> int:
        """How many workers really run under ``worker_id`` in the cluster ``cluster_id``, found without the
        provider."""
        raise NotImplementedError

    async def end_worker(self, worker_id: str) -> None:
        """Let the worker ``worker_id`` die by itself."""
        raise NotImplementedError

    async def clean(self) -> None:
        """End all workers that the check has left running."""

    # -- checks -----------------------------------------------------------------------------

    def test_wanted_workers_run(self) -> None:
        async def check() -> None:
            provider = await self.open()
            assert dict(await provider.list()) == {}, "an empty world lists workers"
            await self._run(provider, "a", "b")
            await provider.close()

        self._check(check)

    def test_asking_again_changes_nothing(self) -> None:
        async def check() -> None:
            provider = await self.open()
            for _ in range(3):
                await self._run(provider, "a", "b")
            await provider.close()

        self._check(check)

    def test_the_set_grows_and_shrinks(self) -> None:
        async def check() -> None:
            provider = await self.open()
            for ids in (("a", "b", "c"), ("b",), ("b", "d"), ()):
                await self._run(provider, *ids)
            await provider.close()

        self._check(check)

    def test_workers_outlive_the_provider(self) -> None:
        """After a leader has gone, the next one knows the ids from its log and sees which workers run."""

        async def check() -> None:
            first = await self.open()
            await self._run(first, "a", "b")
            await first.close()
            second = await self.open()
            phases = await second.list()
            assert dict(phases) == dict.fromkeys("ab", WorkerPhase.RUNNING), f"the next leader sees {phases}"
            await self._run(second, "a", "b", "c")
            await self._run(second, "c")
            await second.close()

        self._check(check)

    def test_two_leaders_at_once_start_one_worker_an_id(self) -> None:
        """A former leader that does not know yet that it was replaced may ask for the same workers as the new
        one."""

        async def check() -> None:
            providers = [await self.open() for _ in range(3)]
            wanted = dict.fromkeys("abc", self.profile)
            await asyncio.gather(*(p.ensure(wanted) for p in providers for _ in range(3)))
            await self._run(providers[0], "a", "b", "c")
            for provider in providers:
                await provider.close()

        self._check(check)

    def test_a_call_that_was_cut_off_can_be_made_again(self) -> None:
        async def check() -> None:
            for turns in range(6):
                provider = await self.open()
                ids = [f"{turns}-{i}" for i in range(3)]
                call = asyncio.ensure_future(provider.ensure(dict.fromkeys(ids, self.profile)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                again = await self.open()
                await self._run(again, *ids)
                await provider.close()
                await again.close()

        self._check(check)

    def test_a_worker_that_ended_is_said_to_have_ended_and_stays_so(self) -> None:
        async def check() -> None:
            provider = await self.open()
            await self._run(provider, "a", "b")
            await self.end_worker("a")
            await self._until(provider, "a", WorkerPhase.ENDED)
            wanted = dict.fromkeys("ab", self.profile)
            await provider.ensure(wanted)
            assert await self.instances("a") == 0, (
                "a second worker was started under the id of one that ended"
            )
            other = await self.open()
            assert (await other.list())["a"] is WorkerPhase.ENDED, (
                "the next leader does not see that it ended"
            )
            await self._run(other, "b", "c")
            assert "a" not in await other.list(), "a worker that ended and is not wanted is listed for ever"
            await provider.close()
            await other.close()

        self._check(check)

    def test_other_clusters_are_left_alone(self) -> None:
        async def check() -> None:
            ours, theirs = await self.open(), await self.open("another")
            await theirs.ensure({"a": self.profile})
            await self._run(ours, "a", "b")
            await self._run(ours)
            await self._until(theirs, "a", WorkerPhase.RUNNING)
            assert await self.instances("a", "another") == 1, "a worker of another cluster was stopped"
            await theirs.ensure({})
            await ours.close()
            await theirs.close()

        self._check(check)

    # -- helpers -----------------------------------------------------------------------------

    async def _run(self, provider: ResourceProvider, *ids: str) -> None:
        """``ensure`` and wait until exactly these run, each once."""
        wanted = dict.fromkeys(ids, self.profile)
        await provider.ensure(wanted)
        while dict(await provider.list()) != dict.fromkeys(ids, WorkerPhase.RUNNING):
            phases = await provider.list()
            ended = [i for i in ids if phases.get(i) is WorkerPhase.ENDED]
            assert not ended, f"wanted workers {ended} are listed as ended"
            await asyncio.sleep(_PAUSE_S)
            await provider.ensure(wanted)
        await self._once(ids)

    async def _once(self, ids: Collection[str]) -> None:
        for worker_id in ids:
            count = await self.instances(worker_id)
            assert count == 1, f"{count} workers run under the id '{worker_id}'"

    async def _until(self, provider: ResourceProvider, worker_id: str, phase: WorkerPhase) -> None:
        while (await provider.list()).get(worker_id) is not phase:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)

    def _check(self, check: Callable[[], Awaitable[None]]) -> None:
        async def cleaned() -> None:
            try:
                await check()
            finally:
                await self.clean()

        self.within_patience(cleaned())
