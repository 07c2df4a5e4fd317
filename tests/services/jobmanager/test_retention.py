"""What is kept, and until when."""

from __future__ import annotations

from penstock.messages.slot import CheckpointComplete, StateHandle, StateLink
from penstock.messages.task_manager import SlotCommand
from penstock.snapshots.manifest import CheckpointManifest, VertexState
from penstock_services.jobmanager.checkpoints import Completed
from penstock_services.jobmanager.effects import Command, DeleteObjects
from penstock_services.jobmanager.retention import Retention


def completed(checkpoint_id: int, *on: int, kind: str = "checkpoint") -> Completed:
    """``on``: older checkpoints whose objects its delta builds on."""
    chain = tuple(StateLink(checkpoint_id=i, key=f"object-{i}") for i in on)
    handle = StateHandle(
        vertex_id="v",
        subtask_index=0,
        checkpoint_id=checkpoint_id,
        key=f"object-{checkpoint_id}",
        chain=chain,
    )
    vertex = VertexState(
        vertex_id="v", name="v", uids=("u",), parallelism=1, max_parallelism=128, handles=(handle,)
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=checkpoint_id, kind=kind, timestamp_ms=1, job_attempt=1,
        epoch=2, vertices=(vertex,),
    )  # fmt: skip
    return Completed(checkpoint_id, f"manifest-{checkpoint_id}", manifest, kind)


def command(command_id: str) -> Command:
    complete = CheckpointComplete(epoch=2, checkpoint_id=1)
    return Command("tm", SlotCommand(command_id=command_id, allocation_id="a", command=complete))


def ids(retention: Retention) -> list[int]:
    return [c.checkpoint_id for c in retention.retained]


def test_an_old_one_goes_when_every_slot_has_heard_of_its_successor():
    retention = Retention(1)
    retention.retained.extend([completed(1), completed(2)])
    retention.told(2, [command("a"), command("b")])
    assert not retention.heard("a")
    assert not retention.heard("a"), "a repeat"
    assert retention.problems() == []
    assert retention.heard("b")
    assert retention.subsume(set()) == [DeleteObjects(frozenset({"manifest-1", "object-1"}))]
    assert ids(retention) == [2]


def test_while_one_slot_has_not_heard_both_stay():
    retention = Retention(1)
    retention.retained.extend([completed(1), completed(2)])
    retention.told(2, [command("a"), command("b")])
    retention.lost("b")
    assert not retention.heard("a")
    assert not retention.all_heard
    retention.retained.append(completed(3))
    retention.told(3, [command("c")])
    assert retention.heard("c")
    (deleted,) = retention.subsume(set())
    assert deleted.keys == {"manifest-1", "object-1", "manifest-2", "object-2"}


def test_what_a_newer_manifest_names_in_its_chain_stays():
    retention = Retention(1)
    retention.retained.extend([completed(1), completed(2, 1), completed(3, 1)])
    retention.told(3, [])
    (deleted,) = retention.subsume({"object-2"})
    assert deleted.keys == {"manifest-1", "manifest-2"}, "object-1 is in a chain, object-2 in use"


def test_a_damaged_one_is_not_restored_again():
    retention = Retention(2)
    retention.retained.extend([completed(1), completed(2)])
    assert retention.discredit(2).checkpoint_id == 2
    assert retention.last.checkpoint_id == 1
    assert retention.discredit(2) is None


def test_a_damaged_one_stays_until_a_newer_one_is_complete():
    """It is all there is, if none comes: somebody may save what is whole of it."""
    retention = Retention(2)
    for n in (1, 2):
        retention.complete(completed(n))
    for n in (2, 1):
        retention.discredit(n)
    assert retention.last is None
    assert retention.subsume(set()) == []
    assert retention.named() == {"object-1", "object-2"}
    retention.complete(completed(3))
    assert retention.kept_beside(completed(4)) == (3,)
    retention.told(3, [])
    (deleted,) = retention.subsume(set())
    assert deleted.keys == {"manifest-1", "object-1", "manifest-2", "object-2"}
    assert retention.problems() == []


def run(retention: Retention, *checkpoints: Completed) -> list[tuple[int, ...]]:
    """Complete them one after the other, and what each one's entry in the log says."""
    said = []
    for c in checkpoints:
        said.append(retention.kept_beside(c))
        retention.complete(c)
        retention.told(c.checkpoint_id, [])
        retention.subsume(set())
        assert retention.problems() == []
    return said


CHAINS = [
    completed(1),
    completed(2, 1),
    completed(3, 2, 1),
    completed(4),
    completed(5, 4),
    completed(6, 5, 4),
]


def test_one_is_kept_that_shares_no_object_with_the_newest():
    retention = Retention(2)
    said = run(retention, *CHAINS)
    assert ids(retention) == [3, 5, 6]
    assert said[-1] == (3, 4, 5), "as it is when nobody has heard of the sixth yet"
    run(retention, completed(7), completed(8, 7))
    assert ids(retention) == [6, 7, 8], "a later one of which the same is true"
    for n in (8, 7):
        retention.discredit(n)
    assert retention.last.checkpoint_id == 6


def test_who_keeps_one_only_keeps_no_other():
    retention = Retention(1)
    run(retention, *CHAINS)
    assert ids(retention) == [6]


def test_an_heir_keeps_it_too():
    retention = Retention(2)
    retention.inherit([CHAINS[2], *CHAINS[4:]])
    run(retention, completed(7, 6, 5, 4))
    assert ids(retention) == [3, 6, 7]
    run(retention, completed(8), completed(9, 8), completed(10, 9, 8))
    assert ids(retention) == [7, 9, 10]


def test_what_a_checkpoint_in_flight_may_build_on_stays():
    """It was triggered when not every task had heard of the newer one: some of its snapshots
    are deltas to the old one."""
    retention = Retention(1)
    retention.retained.append(completed(1))
    retention.told(1, [])
    assert retention.subsume(set()) == []
    in_flight = retention.floor
    retention.retained.append(completed(2))
    retention.told(2, [])
    assert retention.subsume(set(), [in_flight]) == []
    assert retention.problems([in_flight]) == []
    (deleted,) = retention.subsume(set(), [])
    assert deleted.keys == {"manifest-1", "object-1"}


def test_after_savepoints_deltas_still_build_on_the_checkpoint_before_them():
    retention = Retention(1)
    retention.retained.append(completed(1))
    retention.told(1, [])
    retention.subsume(set())
    for n in (2, 3):
        retention.retained.append(completed(n, kind="savepoint"))
        retention.told(n, [])
        deleted = retention.subsume(set())
    assert ids(retention) == [1, 3]
    assert deleted == [DeleteObjects(frozenset({"manifest-2", "object-2"}))]
    retention.retained.append(completed(4, 1))
    retention.told(4, [])
    (deleted,) = retention.subsume(set())
    assert deleted.keys == {"manifest-1", "manifest-3", "object-3"}, "object-1 is in the chain"
    assert ids(retention) == [4]


def test_an_heir_deletes_nothing_that_its_tasks_may_build_on():
    retention = Retention(1)
    retention.inherit([completed(5, 4), completed(6, kind="savepoint")])
    retention.told(6, [])
    assert retention.subsume(set()) == []
    retention.retained.append(completed(7, 4))
    retention.told(7, [])
    (deleted,) = retention.subsume(set())
    assert "object-4" not in deleted.keys
    assert ids(retention) == [7]
