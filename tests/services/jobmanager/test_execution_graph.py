from __future__ import annotations

import itertools

import pytest

from penstock.errors import InternalError
from penstock.jobgraph import Broadcast, Forward, Global, Hash, Rebalance, Rescale
from penstock.messages.job_master import TaskReport
from penstock.messages.slot import StateHandle, TaskStateChanged
from penstock.messages.states import EXECUTION_TRANSITIONS, ExecutionState
from penstock_services.jobmanager.execution_graph import ExecutionGraph, Update
from penstock_services.jobmanager.topology import upstream_subtasks
from tests.services.jobmanager.graphs import diamond, pipeline

E = ExecutionState


def graph_of(job_graph=None, attempt: int = 1) -> ExecutionGraph:
    graph = ExecutionGraph("j", job_graph or pipeline())
    graph.new_attempt(attempt, 5)
    return graph


def report(graph, state, *, vertex="read", index=0, attempt=1, execution_id=None, **more):
    return graph.report(
        TaskStateChanged(
            job_id="j",
            job_attempt=attempt,
            execution_id=execution_id or f"j_{vertex}_{index}_{attempt}",
            vertex_id=vertex,
            subtask_index=index,
            state=state,
            timestamp_ms=9,
            **more,
        )
    )


@pytest.mark.parametrize(
    ("partitioning", "source", "target", "expected"),
    [
        (Forward(), 3, 3, [[0], [1], [2]]),
        (Hash((0,)), 2, 3, [[0, 1]] * 3),
        (Broadcast(), 1, 2, [[0], [0]]),
        (Rebalance(), 2, 2, [[0, 1]] * 2),
        (Global(), 3, 1, [[0, 1, 2]]),
        (Rescale(), 2, 4, [[0], [0], [1], [1]]),
        (Rescale(), 4, 2, [[0, 1], [2, 3]]),
        (Rescale(), 3, 2, [[0], [1, 2]]),
    ],
)
def test_upstream_subtasks(partitioning, source, target, expected):
    found = [list(upstream_subtasks(partitioning, i, source, target)) for i in range(target)]
    assert found == expected


def test_the_order_is_the_graphs_whatever_that_of_the_vertices_asked_for():
    """A set's is another in each process: what a master does would be no function of its story."""
    graph = graph_of(diamond())
    ids = [v.id for v in graph.job_graph.vertices]
    for asked in itertools.permutations(ids):
        assert [e.vertex_id for e in graph.of(asked)] == [e.vertex_id for e in graph]
    some = frozenset(ids[1:])
    assert list(graph.of(some)) == [e for e in graph if e.vertex_id in some]


def test_upstream_of_several_inputs():
    graph = graph_of(diamond())
    found = [(e.vertex_id, e.subtask_index) for e in graph.upstream(graph.vertex("join")[2])]
    assert found == [("left", 0), ("left", 1), ("right", 2)]


@pytest.mark.parametrize("before", list(E))
@pytest.mark.parametrize("after", list(E))
def test_every_pair_of_states_has_an_answer(before, after):
    graph = graph_of()
    execution = graph.vertex("read")[0]
    known = TaskReport(execution_id=execution.execution_id, vertex_id="read", subtask_index=0, state=before)
    graph.adopt(execution, known, 1)
    graph.place(execution, "a", "tm")
    answer = report(graph, after)
    if before is after:
        assert answer is Update.DUPLICATE
    elif before.terminal:
        assert answer is Update.LATE
    elif after in EXECUTION_TRANSITIONS[before]:
        assert answer is Update.APPLIED
        assert execution.state is after
    else:
        assert answer in (Update.LATE, Update.ILLEGAL)
        assert execution.state is before
    graph.validate_state()


def test_reports_of_other_attempts_and_strangers():
    graph = graph_of(attempt=2)
    assert report(graph, E.RUNNING, attempt=1) is Update.LATE
    assert report(graph, E.RUNNING, attempt=3) is Update.UNKNOWN
    assert report(graph, E.RUNNING, attempt=2, execution_id="other") is Update.UNKNOWN
    assert report(graph, E.RUNNING, attempt=2) is Update.ILLEGAL, "nobody deployed it"


def test_a_finished_task_leaves_its_last_snapshot():
    graph = graph_of()
    execution = graph.vertex("read")[0]
    graph.place(execution, "a", "tm")
    graph.transition_all([execution], E.SCHEDULED, 6)
    graph.transition_all([execution], E.DEPLOYING, 7)
    graph.wants_final_checkpoint(execution)
    final = StateHandle(vertex_id="read", subtask_index=0, checkpoint_id=0, key="k")
    assert report(graph, E.FINISHED, final=final) is Update.APPLIED
    assert (execution.final, graph.wanting) == (final, set())
    assert execution.timestamps == {"CREATED": 5, "SCHEDULED": 6, "DEPLOYING": 7, "FINISHED": 9}


def test_attempts_only_grow_and_only_over_dead_executions():
    graph = graph_of()
    with pytest.raises(InternalError, match="live"):
        graph.new_attempt(2, 10)
    graph.transition_all(list(graph), E.CANCELED, 9)
    with pytest.raises(InternalError, match="grow"):
        graph.new_attempt(1, 10)
    graph.new_attempt(2, 10)
    assert graph.summary() == "6 CREATED"


def test_a_broken_invariant_is_named():
    graph = graph_of()
    graph.vertex("sum")[1].state = E.RUNNING
    with pytest.raises(InternalError, match="RUNNING without a slot"):
        graph.validate_state()
