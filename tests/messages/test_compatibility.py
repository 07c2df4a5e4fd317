"""What of a savepoint a job would find."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import SpecError
from penstock.messages.compatibility import check, compare, fitted, operators_of
from penstock.messages.footers import OperatorSummary, StateSummary
from penstock.messages.manifest import CheckpointManifest, VertexState
from tests.services.jobmanager.graphs import pipeline


def summary(uid: str, rows: int = 5, max_parallelism: int = 128) -> OperatorSummary:
    states = [StateSummary(name="value/n", kind="keyed", rows=rows)] if rows else []
    return OperatorSummary(
        uid=uid, name=uid, vertex=uid, parallelism=2, max_parallelism=max_parallelism, states=states
    )


MINE = operators_of(pipeline())


def test_operators_map_by_uid_and_nothing_else():
    found = compare(MINE, [summary("uid-sum"), summary("uid-gone"), summary("uid-stateless", rows=0)])
    assert [o.uid for o in found.mapped] == ["uid-sum"]
    assert [(o.uid, o.states) for o in found.dropped] == [("uid-gone", ("value/n (keyed, 5 rows)",))]
    assert {o.uid for o in found.new} == {"uid-enumerate", "uid-read", "uid-sink"}
    with pytest.raises(SpecError) as refused:
        check(found, "here", lenient=False)
    assert "'uid-gone' (uid-gone): value/n (keyed, 5 rows)" in refused.value.got
    assert "uid-read" in refused.value.expected
    check(found, "here", lenient=True)


def test_an_operator_that_held_its_event_time_only_is_not_missed():
    states = [StateSummary(name="watermark", kind="union", rows=2)]
    local = msgspec.structs.replace(summary("uid-local"), states=states)
    assert compare(MINE, [summary("uid-sum"), local]).dropped == ()
    more = msgspec.structs.replace(local, states=[*states, *summary("x").states])
    assert [o.uid for o in compare(MINE, [more]).dropped] == ["uid-local"]


def test_a_savepoint_of_another_job_is_called_that():
    with pytest.raises(SpecError, match="it is of another job"):
        check(compare(MINE, [summary("elsewhere")]), "here", lenient=False)


@pytest.mark.parametrize(
    ("theirs", "own", "says"),
    [(1, False, "parallelism 2 is more than"), (64, True, "is 128, the savepoint's 64"), (64, False, None)],
)
def test_key_groups_must_fit(theirs, own, says):
    found = compare(MINE, [summary("uid-sum", max_parallelism=theirs)], own_max_parallelism=own)
    if says is None:
        check(found, "here", lenient=False)
        return
    with pytest.raises(SpecError) as refused:
        check(found, "here", lenient=True)
    assert says in str(refused.value)


@pytest.mark.parametrize(("config", "expected"), [({}, 64), ({"pipeline.max-parallelism": "128"}, 128)])
def test_the_job_takes_the_savepoints_max_parallelism(config, expected):
    graph = msgspec.structs.replace(pipeline(), config=config)
    state = VertexState(
        vertex_id="x", name="sum", uids=("uid-sum",), parallelism=4, max_parallelism=64, handles=()
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=1, kind="savepoint", timestamp_ms=1, job_attempt=1, epoch=2,
        vertices=(state,),
    )  # fmt: skip
    assert {v.max_parallelism for v in fitted(graph, manifest).vertices} == {expected}
