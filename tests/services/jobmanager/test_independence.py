"""Which older checkpoint is kept beside those that share objects."""

from __future__ import annotations

import pytest

from penstock.messages.slot import StateHandle, StateLink
from penstock.snapshots.manifest import CheckpointManifest, VertexState
from penstock_services.jobmanager.checkpoints import Completed
from penstock_services.jobmanager.independence import Fallback, independent


def subtask(index: int, *ids: int) -> StateHandle:
    """``ids``: its object's checkpoint, then those that it builds on, newest first."""
    first, *chain = (StateLink(checkpoint_id=i, key=f"s{index}-{i}") for i in ids)
    return StateHandle(
        vertex_id="v",
        subtask_index=index,
        checkpoint_id=first.checkpoint_id,
        key=first.key,
        chain=tuple(chain),
    )


def checkpoint(number: int, *subtasks: tuple[int, ...]) -> Completed:
    handles = tuple(subtask(i, *ids) for i, ids in enumerate(subtasks))
    vertex = VertexState(
        vertex_id="v", name="v", uids=("u",), parallelism=len(handles), max_parallelism=128, handles=handles
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=number, kind="checkpoint", timestamp_ms=1, job_attempt=1,
        epoch=2, vertices=(vertex,),
    )  # fmt: skip
    return Completed(number, f"manifest-{number}", manifest, "checkpoint")


@pytest.mark.parametrize(
    ("older", "newer", "is_so"),
    [
        pytest.param([(1,)], [(2,)], True, id="both whole"),
        pytest.param([(1,)], [(2, 1)], False, id="a delta to it"),
        pytest.param([(2, 1)], [(3, 2, 1)], False, id="one chain"),
        pytest.param([(3, 2, 1)], [(5, 4)], True, id="a new chain"),
        pytest.param([(3, 2, 1), (3, 1)], [(5, 4), (5, 3, 1)], False, id="one of two goes on"),
        pytest.param([(3, 2, 1), (2, 1)], [(5, 4), (2, 1)], True, id="one had finished before either"),
        pytest.param([(3, 2, 1), (3, 2)], [(5, 4), (4, 3, 2)], False, id="one finished in between"),
    ],
)
def test_two_are_independent_when_no_object_is_read_for_both(older, newer, is_so):
    assert independent(checkpoint(1, *older), checkpoint(2, *newer)) is is_so


def run(*begins: tuple[int, ...], until: int, always_whole: bool = False) -> list[tuple[int, Fallback]]:
    """``begins``: of each subtask the checkpoints at which it begins a new chain."""
    fallback, done, found = Fallback(), {}, []
    for number in range(1, until + 1):
        bases = [max(b for b in (1, *begun) if b <= number) for begun in begins]
        places = [tuple(range(number, base - 1, -1)) for base in bases]
        if always_whole:
            places.append((number,))
        done[number] = checkpoint(number, *places)
        fallback = fallback.after(done[number], done.get(fallback.held))
        found.append((number, fallback))
        kept = done.get(fallback.kept)
        assert kept is None or independent(kept, done[number])
    return found


@pytest.mark.parametrize("always_whole", [False, True])
def test_it_is_the_last_before_all_began_anew(always_whole):
    """The one whole at every checkpoint is in nobody's way."""
    found = dict(run((10, 19), until=20, always_whole=always_whole))
    assert {found[n] for n in (1, 9)} == {Fallback(0, 1), Fallback(0, 9)}
    assert found[10] == Fallback(9, 10)
    assert found[18] == Fallback(9, 18)
    assert found[19] == Fallback(18, 19)


def test_subtasks_that_begin_at_different_times():
    found = dict(run((4, 10, 16), (7, 13, 19), until=20))
    assert found[6] == Fallback(0, 3), "held since the first of them began anew"
    assert found[7] == Fallback(3, 7)
    assert found[12] == Fallback(3, 9)
    assert found[13] == Fallback(9, 13)
    assert found[19] == Fallback(15, 19)


def test_what_is_whole_every_time_needs_none_besides():
    assert dict(run((), until=9))[9] == Fallback(0, 9), "one chain for ever: there is none"
    found = dict(run(tuple(range(2, 10)), until=9))
    assert all(found[n] == Fallback(n - 1, n) for n in range(2, 10))


def test_what_was_held_and_is_gone_is_replaced():
    assert Fallback(3, 7).after(checkpoint(9, (9, 8)), None) == Fallback(3, 9)
