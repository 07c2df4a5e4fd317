"""What of a savepoint a job would find."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import SpecError
from penstock.snapshots.compatibility import DeclaredStates, by_state, check, compare, fitted, operators_of
from penstock.snapshots.footers import OperatorSummary, StateSummary
from penstock.snapshots.manifest import CheckpointManifest, VertexState
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


def two_states() -> OperatorSummary:
    states = [
        StateSummary(name=name, kind="keyed", rows=rows)
        for name, rows in (("value/count", 3), ("map/pads", 7), ("timer/event", 1))
    ]
    return msgspec.structs.replace(summary("uid-sum"), states=states)


@pytest.mark.parametrize(
    ("declared", "mapped", "unread", "new", "problems"),
    [
        (None, ["value/count", "map/pads", "timer/event"], [], [], ()),
        (DeclaredStates(), ["value/count", "map/pads", "timer/event"], [], [], ()),
        (
            DeclaredStates(unread=("map/pads",), new=("map/padsx",)),
            ["value/count", "timer/event"],
            ["map/pads (keyed, 7 rows)"],
            ["map/padsx"],
            (),
        ),
        (
            DeclaredStates(unreadable=("value/count",), problems=("it is BIGINT",)),
            ["map/pads", "timer/event"],
            [],
            [],
            ("it is BIGINT",),
        ),
        (
            DeclaredStates(known=False, unread=("map/pads",), new=("map/padsx",)),
            ["value/count", "map/pads", "timer/event"],
            [],
            [],
            (),
        ),
    ],
)
def test_states_of_an_operator_map_one_by_one(declared, mapped, unread, new, problems):
    plain = compare(MINE, [two_states()])
    found = by_state(plain, [two_states()], {} if declared is None else {"uid-sum": declared})
    assert [[s.partition(" ")[0] for s in o.states] for o in found.mapped] == [mapped]
    assert [s for o in found.unread for s in o.states] == unread
    assert [s for o in found.new if o not in plain.new for s in o.states] == new
    assert found.problems == problems
    unknown = declared is not None and not declared.known
    assert bool(found.notes) == unknown
    assert not unknown or "known only when they run: compared by operator: 'uid-sum'" in found.notes[0]
