"""A task manager and the resource manager that knew it die together: who notices."""

from __future__ import annotations

from penstock_services.jobmanager.effects import FindTaskManagers, LookFor
from penstock_services.jobmanager.taskmanager_watch import TaskManagerWatch


def watching() -> TaskManagerWatch:
    """Another resource manager leads since 10 s, and all had the time to register."""
    found = TaskManagerWatch(1_000, 10_000)
    found.answered(1, 0)
    assert found.answered(1, 3_000) == [FindTaskManagers()]
    assert found.known({"tm1", "tm2"}, frozenset({"tm1", "tm2", "tm3"}), 3_010) == ([], {})
    assert found.answered(1, 5_000) == [], "all are known: nobody is asked any more"
    assert found.answered(2, 10_000) == [], "they may not have registered yet"
    assert found.answered(2, 13_000) == [FindTaskManagers()]
    return found


def test_one_of_whom_the_broker_knows_nothing_either_is_lost():
    found = watching()
    assert found.known({"tm1", "tm2"}, frozenset({"tm1"}), 13_010) == ([LookFor("tm2")], {})
    assert found.looked_for("tm2", gone=True) is None, "it may be connecting again"
    assert found.answered(2, 15_000) == [FindTaskManagers()]
    assert found.known({"tm1", "tm2"}, frozenset({"tm1"}), 15_010) == ([LookFor("tm2")], {})
    assert "broker is gone" in found.looked_for("tm2", gone=True)
    assert found.looked_for("tm2", gone=True) is None, "said once"


def test_one_that_answers_is_not_lost_though_nobody_has_heard_of_it():
    found = watching()
    for n in range(5):
        found.known({"tm2"}, frozenset(), 13_000 + 2_000 * n)
        assert found.looked_for("tm2", gone=n % 2 == 0) is None


def test_one_that_registers_later_was_only_late():
    found = watching()
    found.known({"tm2"}, frozenset(), 13_000)
    assert found.looked_for("tm2", gone=True) is None
    assert found.known({"tm2"}, frozenset({"tm2"}), 15_000) == ([], {})
    assert found.looked_for("tm2", gone=True) is None
    assert found.answered(2, 17_000) == []


def test_silence_on_all_sides_counts_after_the_heartbeat_timeout():
    found = watching()
    found.known({"tm2"}, frozenset(), 13_000)
    assert found.known({"tm2"}, frozenset(), 23_000) == ([LookFor("tm2")], {})
    assert found.known({"tm2"}, frozenset(), 23_001) == ([], {"tm2": "no heartbeat of it for 10001 ms"})
