"""Which workers there are to be, with a provider and task managers that do as they are told."""

from __future__ import annotations

import pytest

from penstock.providers import WorkerPhase
from penstock_services.resourcemanager.workers import CHECK_MS, Registered, Workers, WorkerSettings

SETTINGS = WorkerSettings(slots=2, idle_ms=10_000, registration_ms=60_000, retry_ms=3_000)


class World:
    """A provider's workers, and the task managers in them."""

    def __init__(self, settings=SETTINGS, epoch=7):
        self.workers = Workers(settings, epoch)
        self.phases: dict[str, WorkerPhase] = {}
        self.managers: dict[str, Registered] = {}
        self.now = 0
        self.ensured = 0

    def check(self, missing=0, registers=True):
        """One look, and what follows from it. The ids that are to be."""
        self.now += CHECK_MS
        assert self.workers.due(self.now)
        wanted = self.workers.listed(dict(self.phases), dict(self.managers), missing, self.now)
        if wanted is not None:
            self.ensured += 1
            for worker_id in wanted.keys() - self.phases.keys():
                self.phases[worker_id] = WorkerPhase.RUNNING
                if registers:
                    self.managers[worker_id] = Registered(wanted[worker_id].slots, wanted[worker_id].slots)
            for worker_id in self.phases.keys() - wanted.keys():
                del self.phases[worker_id]
                self.managers.pop(worker_id, None)
            self.workers.done(self.now)
        return sorted(self.workers.wanted)

    def use(self, worker_id, slots):
        self.managers[worker_id] = Registered(2, 2 - slots)


def test_nothing_is_wanted_where_nothing_is_missing():
    world = World()
    assert world.check() == []
    assert world.ensured == 0


def test_as_many_workers_as_hold_the_slots_that_are_missing():
    world = World()
    assert world.check(missing=5) == ["w7-1", "w7-2", "w7-3"]
    assert world.check(missing=5) == ["w7-1", "w7-2", "w7-3"]  # free now, not yet assigned
    assert world.ensured == 1


def test_workers_on_their_way_and_free_slots_count():
    world = World()
    world.managers["standing"] = Registered(1, 1)
    assert world.check(missing=3, registers=False) == ["w7-1"]
    assert world.check(missing=3, registers=False) == ["w7-1"]
    assert world.check(missing=4, registers=False) == ["w7-1", "w7-2"]


def test_the_cluster_grows_to_its_most_slots_and_no_further():
    world = World(WorkerSettings(slots=2, most_slots=5))
    world.managers["standing"] = Registered(1, 0)
    assert world.check(missing=10) == ["w7-1", "w7-2"]


def test_the_least_slots_and_redundant_workers_are_there_without_jobs():
    assert World(WorkerSettings(slots=2, least_slots=3)).check() == ["w7-1", "w7-2"]
    world = World(WorkerSettings(slots=2, redundant=1, idle_ms=0))
    assert world.check() == ["w7-1"]
    world.use("w7-1", 2)
    assert world.check() == ["w7-1", "w7-2"]
    for _ in range(3):
        assert world.check() == ["w7-1", "w7-2"]


def test_an_idle_worker_is_released_after_its_time_and_a_busy_one_is_not():
    world = World()
    world.check(missing=4)
    world.use("w7-1", 1)
    until = world.now + CHECK_MS + SETTINGS.idle_ms
    while world.now + CHECK_MS < until:
        assert world.check() == ["w7-1", "w7-2"]
    assert world.check() == ["w7-1"]
    for _ in range(30):
        assert world.check() == ["w7-1"]


def test_a_released_worker_is_lent_to_nobody_while_it_is_still_registered():
    world = World(WorkerSettings(slots=2, idle_ms=0))
    world.check(missing=2)
    world.now += CHECK_MS
    world.workers.due(world.now)
    assert world.workers.listed(world.phases, world.managers, 0, world.now) == {}
    assert world.workers.draining == {"w7-1"}
    world.workers.done(world.now)
    # Its free slots are not counted for a job that comes now.
    assert world.check(missing=1) == ["w7-2"]


def test_idle_workers_stay_while_jobs_wait_for_more_than_is_free():
    world = World(WorkerSettings(slots=2, idle_ms=0, most_slots=2))
    assert world.check(missing=3) == ["w7-1"]
    for _ in range(5):
        assert world.check(missing=3) == ["w7-1"]


def test_a_worker_that_ended_is_replaced_under_another_id():
    world = World()
    world.check(missing=2)
    world.phases["w7-1"] = WorkerPhase.ENDED
    del world.managers["w7-1"]
    assert world.check(missing=2) == ["w7-2"]
    assert "w7-1" not in world.phases


def test_a_worker_that_does_not_register_is_given_up():
    world = World()
    assert world.check(missing=2, registers=False) == ["w7-1"]
    world.now += SETTINGS.registration_ms
    assert world.check(missing=2, registers=False) == ["w7-2"]


def test_workers_that_end_again_and_again_are_started_slowly():
    world = World(WorkerSettings(slots=1, most_failures=3, retry_ms=20_000))
    started = set()
    for _ in range(60):  # 30 s
        started |= set(world.check(missing=1, registers=False))
        world.phases = dict.fromkeys(world.phases, WorkerPhase.ENDED)
    assert 4 <= len(started) <= 6


def test_a_new_leader_adopts_what_there_is():
    before = World(epoch=7)
    before.check(missing=4)
    before.phases["w7-2"] = WorkerPhase.PENDING
    before.phases["w7-9"] = WorkerPhase.STOPPING
    after = World(epoch=8)
    after.phases, after.managers = before.phases, before.managers
    assert after.check(missing=4) == ["w7-1", "w7-2"]
    assert after.check(missing=6) == ["w7-1", "w7-2", "w8-1"]


def test_a_provider_that_fails_is_asked_again_later():
    workers = Workers(SETTINGS, 1)
    assert workers.due(0)
    assert not workers.due(10_000)  # one question at a time
    workers.failed(10_000)
    assert not workers.due(12_999)
    assert workers.due(13_000)


@pytest.mark.parametrize("phase", [WorkerPhase.ENDED, WorkerPhase.STOPPING])
def test_the_provider_is_told_again_until_what_is_not_wanted_is_gone(phase):
    world = World()
    world.phases["old"] = phase
    world.check()
    assert world.ensured == 1
    assert world.phases == {}
