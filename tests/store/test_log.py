"""Who may decide: epochs, fencing, lost answers."""

import pytest

from penstock.errors import FencedError, InternalError, ObjectStoreError
from penstock.messages.cluster import CheckpointCompleted, JobAccepted, LeaderEpoch
from penstock.store import MemoryStore, job_log

ACCEPTED = JobAccepted(job_id="j", name="n", timestamp_ms=1, job_graph_key="g", spec_key="s")


def completed(epoch: int, checkpoint_id: int) -> CheckpointCompleted:
    return CheckpointCompleted(
        epoch=epoch, checkpoint_id=checkpoint_id, manifest_key=f"m{checkpoint_id}", timestamp_ms=5
    )


async def test_a_life():
    store = MemoryStore()
    assert await job_log(store, "j").begin(ACCEPTED)
    assert await job_log(store, "j").begin(ACCEPTED)  # the same submission again
    assert not await job_log(store, "j").begin(JobAccepted(
        job_id="j", name="other", timestamp_ms=2, job_graph_key="g", spec_key="s"
    ))  # fmt: skip
    log = job_log(store, "j")
    assert await log.lead("jm-1", 10) == 2
    assert await log.append(completed(2, 1)) == 3
    assert sorted(store.objects) == [f"jobs/j/log/{n:012d}" for n in (1, 2, 3)]
    reader = job_log(store, "j")
    assert await reader.read() == [
        (1, ACCEPTED),
        (2, LeaderEpoch(leader_id="jm-1", timestamp_ms=10)),
        (3, completed(2, 1)),
    ]
    assert reader.latest_epoch == 2


async def test_what_a_log_began_with():
    store = MemoryStore()
    log = job_log(store, "j")
    assert await log.first() is None
    await log.begin(ACCEPTED)
    await log.lead("jm-1", 10)
    assert await job_log(store, "j").first() == ACCEPTED


async def test_append_needs_an_epoch():
    with pytest.raises(InternalError, match="before lead"):
        await job_log(MemoryStore(), "j").append(completed(1, 1))


async def test_the_older_leader_is_fenced_and_its_entry_not_written():
    store = MemoryStore()
    old, new = job_log(store, "j"), job_log(store, "j")
    await old.lead("old", 1)
    assert await new.lead("new", 2) == 2
    with pytest.raises(FencedError, match="epoch 2 is newer than ours, 1"):
        await old.append(completed(1, 7))
    assert await new.append(completed(2, 8)) == 3
    assert [type(e).__name__ for _, e in await job_log(store, "j").read()] == [
        "LeaderEpoch", "LeaderEpoch", "CheckpointCompleted",
    ]  # fmt: skip


async def test_the_older_leader_stays_fenced():
    """An entry that waited behind the one that was refused is refused, too."""
    store = MemoryStore()
    old, new = job_log(store, "j"), job_log(store, "j")
    await old.lead("old", 1)
    await new.lead("new", 2)
    for _ in range(2):
        with pytest.raises(FencedError, match="epoch 2 is newer than ours, 1"):
            await old.append(completed(1, 1))
    assert len(await job_log(store, "j").read()) == 2


async def test_an_entry_won_before_the_new_epoch_counts():
    store = MemoryStore()
    old, new = job_log(store, "j"), job_log(store, "j")
    await old.lead("old", 1)
    await new.read()
    assert await old.append(completed(1, 7)) == 2
    assert await new.lead("new", 2) == 3
    assert (2, completed(1, 7)) in new.entries


class LosesAnswers(MemoryStore):
    """Writes, then fails, as a store whose answer was lost does."""

    lose = 0

    async def create(self, key, data):
        done = await super().create(key, data)
        if self.lose:
            self.lose -= 1
            raise ObjectStoreError("the answer was lost")
        return done


async def test_repeating_after_a_lost_answer_writes_once():
    store = LosesAnswers()
    log = job_log(store, "j")
    await log.lead("a", 1)
    store.lose = 1
    with pytest.raises(ObjectStoreError):
        await log.append(completed(1, 1))
    assert await log.append(completed(1, 1)) == 2
    assert len(store.objects) == 2
    store.lose = 1
    with pytest.raises(ObjectStoreError):
        await log.append(completed(1, 2))
    assert await log.append(completed(1, 3)) == 4  # another decision goes behind it


async def test_unreadable_entry_is_named():
    store = MemoryStore()
    store.objects["jobs/j/log/000000000001"] = b'{"type":"from-the-future"}'
    with pytest.raises(InternalError) as err:
        await job_log(store, "j").read()
    assert err.value.where == "jobs/j/log/000000000001"
