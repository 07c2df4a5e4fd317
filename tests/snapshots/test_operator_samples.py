"""State that each operator wrote before it kept it in ``penstock.state.keyed`` is still read: what
comes out afterwards is what comes out of an operator that was never stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.columnar.hashing import key_group_range
from penstock.messages.slot import StateHandle, StateLink
from penstock.snapshots import restoring
from penstock.state.memory import StateMemory
from penstock.testing.operator_harness import Cluster, Subtask
from tests.snapshots.operator_samples import CASES, Case, written

SAMPLES = Path(__file__).parent / "samples" / "operators"


def sample(name: str) -> StateHandle:
    whole, delta = ((SAMPLES / f"{name}-{link}.snapshot").read_bytes() for link in ("whole", "delta"))
    return StateHandle(
        vertex_id="v", subtask_index=0, checkpoint_id=2, inline=delta, size_bytes=len(delta),
        key_groups=(0, 127), chain=(StateLink(checkpoint_id=1, inline=whole, size_bytes=len(whole)),),
    )  # fmt: skip


def later(case: Case, subtasks: list[Subtask]) -> Counter:
    """What comes out of the third step and at the end."""
    cluster = Cluster.__new__(Cluster)
    cluster.keys, cluster.subtasks = [(0,)] * case.inputs, subtasks
    cluster.checkpoint_every = cluster._batches = 0
    for subtask in subtasks:
        subtask.out = []
    for side, batch in case.batches(2):
        cluster.process(batch, side)
    for subtask in subtasks:
        subtask.watermark(45_000_000)
        subtask.finish()
    return Counter((kind, repr(row)) for subtask in subtasks for kind, row in subtask.changes())


@pytest.mark.parametrize("limit_bytes", [0, 2_000])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", CASES)
async def test_a_stored_chain(name: str, parallelism: int, limit_bytes: int, tmp_path: Path) -> None:
    case, found = CASES[name], []
    for index in range(parallelism):
        groups = key_group_range(index, parallelism, 128)
        restored = await restoring.restore([sample(name)], "u", groups, index, parallelism)
        memory = StateMemory(limit_bytes)
        memory.check = lambda: None  # nearly all of it is to lie on disk
        found.append(
            case.subtask(
                restored, index=index, parallelism=parallelism, memory=memory, local_dir=tmp_path / str(index)
            )
        )
    straight = case.subtask()
    for step in (0, 1):
        case.run(straight, step)
    assert later(case, found) == later(case, [straight])
    for subtask in (*found, straight):
        subtask.operator.close()


@pytest.mark.parametrize("name", CASES)
async def test_what_is_written_today_has_the_same_layout(name: str) -> None:
    """The same columns under the same names, and a delta that is no larger."""
    stored, today = sample(name), written(CASES[name])
    was, now = [await restoring.restore([x], "u", (0, 127), 0, 1) for x in (stored, today)]
    assert was is not None
    assert now is not None
    forms = [{table: schemas[:1] for table, schemas in x.schemas.items()} for x in (was, now)]
    assert forms[1] == {table: forms[0][table] for table in forms[1]}
    rows = [{table: sum(b.num_rows for b in x.keyed[table]) for table in x.keyed} for x in (was, now)]
    assert {k: n for k, n in rows[0].items() if n} == {k: n for k, n in rows[1].items() if n}
    assert today.size_bytes <= 1.05 * stored.size_bytes
