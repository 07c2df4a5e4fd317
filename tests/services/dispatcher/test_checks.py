"""What a submission passes through: each check by itself, and their order."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from penstock.errors import InternalError, SpecError
from penstock.jobgraph.specs import KeyedProcessSpec, SinkSpec
from penstock.messages.cluster import JobSpec
from penstock.snapshots.footers import OperatorSummary, StateSummary
from penstock.snapshots.manifest import CheckpointManifest, VertexState
from penstock_services.dispatcher import checks
from penstock_services.dispatcher.checks import Savepoint, Submission
from tests.services.jobmanager.graphs import SCHEMA, pipeline

SPEC = JobSpec(sql="SELECT 1")
LENIENT = {"execution.state-recovery.ignore-unclaimed-state": "true"}


def submission(spec: JobSpec = SPEC, name: str = "pipeline", **config: str) -> Submission:
    graph = msgspec.structs.replace(pipeline(**config), name=name)
    return Submission(spec, graph, "s3://bucket/cluster")


def summary(uid: str, max_parallelism: int = 128, schema: dict | None = None) -> OperatorSummary:
    return OperatorSummary(
        uid=uid, name=uid, vertex=uid, parallelism=2, max_parallelism=max_parallelism,
        states=[StateSummary(name="value/n", kind="keyed", rows=5, schema=schema or {})],
    )  # fmt: skip


def savepoint(*uids: str, max_parallelism: int = 128) -> Savepoint:
    vertices = tuple(
        VertexState(
            vertex_id=uid, name=uid, uids=(uid,), parallelism=2, max_parallelism=max_parallelism, handles=()
        )
        for uid in uids
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="j", checkpoint_id=1, kind="savepoint", timestamp_ms=1, job_attempt=1, epoch=2,
        vertices=vertices,
    )  # fmt: skip
    return Savepoint("savepoints/a", manifest, [summary(uid, max_parallelism) for uid in uids])


def with_sink(of: Submission, options: dict[str, str]) -> Submission:
    *others, sink = of.graph.vertices
    spec = SinkSpec(connector="nats", options=options, schema=SCHEMA)
    sink = msgspec.structs.replace(sink, operators=(msgspec.structs.replace(sink.operators[0], spec=spec),))
    return replace(of, graph=msgspec.structs.replace(of.graph, vertices=(*others, sink)))


# -- of the plan --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_spec", "of_program", "expected"),
    [(None, "mine", "mine"), ("theirs", "mine", "theirs"), (None, "", "job"), ("theirs", "", "theirs")],
)
def test_the_name(of_spec: str | None, of_program: str, expected: str) -> None:
    given = submission(msgspec.structs.replace(SPEC, name=of_spec), of_program)
    assert checks.spec_over_program(given).graph.name == expected


def test_the_specs_configuration_wins_and_becomes_text() -> None:
    given = submission(msgspec.structs.replace(SPEC, config={"a": 2, "b": True}), a="1", program="own")
    found = checks.spec_over_program(given)
    assert found.graph.config == {"a": "2", "b": "true", "program": "own"}
    assert given.graph.config == {"a": "1", "program": "own"}, "the submission that came is as it was"


ONCE = {"sink.delivery-guarantee": "exactly-once"}


@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_promises_of_sinks(mode: str) -> None:
    given = with_sink(submission(**{"execution.checkpointing.mode": mode}), ONCE)
    if mode == "EXACTLY_ONCE":
        assert checks.sinks_keep_their_promise(given) is given
        return
    with pytest.raises(SpecError, match="connector 'nats'"):
        checks.sinks_keep_their_promise(given)


def test_a_job_that_is_not_sparks_may_have_its_store_in_a_bucket() -> None:
    given = submission()
    assert checks.spark_reaches_its_checkpoints(given) is given


def test_what_the_spec_says_is_checked_too() -> None:
    """The first check completes the configuration that the others look at."""
    spec = msgspec.structs.replace(SPEC, config={"execution.checkpointing.mode": "AT_LEAST_ONCE"})
    with pytest.raises(SpecError, match="AT_LEAST_ONCE"):
        checks.passed(with_sink(submission(spec), ONCE), checks.OF_THE_PLAN)


# -- of the savepoint ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uids", "config", "refusal"),
    [
        (["uid-sum"], {}, None),
        (["uid-sum", "uid-gone"], {}, "operators that this job does not have"),
        (["uid-sum", "uid-gone"], LENIENT, None),
        (["elsewhere"], {}, "it is of another job"),
    ],
)
def test_whose_savepoint_it_is(uids: list[str], config: dict[str, str], refusal: str | None) -> None:
    given = replace(submission(**config), savepoint=savepoint(*uids))
    if refusal is None:
        assert checks.savepoint_is_this_jobs(given).graph.matched_to == "savepoints/a"
        return
    with pytest.raises(SpecError, match=refusal) as refused:
        checks.savepoint_is_this_jobs(given)
    assert refused.value.where == "savepoints/a"


def test_only_process_functions_are_asked_for_their_states() -> None:
    given = replace(submission(), savepoint=savepoint("uid-read", "uid-sum"))
    assert checks.states_to_ask_for(given) == {}
    vertices = list(given.graph.vertices)
    spec = KeyedProcessSpec(function="f", keys=((0,),))
    vertices[2] = msgspec.structs.replace(
        vertices[2], operators=(msgspec.structs.replace(vertices[2].operators[0], spec=spec),)
    )
    given = replace(given, graph=msgspec.structs.replace(given.graph, vertices=tuple(vertices)))
    assert checks.states_to_ask_for(given) == {"uid-sum": {"value/n": {}}}


def test_states_that_cannot_be_read_are_all_named() -> None:
    given = replace(submission(), savepoint=savepoint("uid-sum"))
    assert checks.states_are_readable(given) is given
    with pytest.raises(SpecError) as refused:
        checks.states_are_readable(replace(given, state_problems=("'a' is a STRING", "'b' is gone")))
    assert refused.value.got == "'a' is a STRING; 'b' is gone"
    assert refused.value.where == "savepoints/a"


@pytest.mark.parametrize(("config", "expected"), [({}, 64), ({"pipeline.max-parallelism": "128"}, 128)])
def test_key_groups(config: dict[str, str], expected: int) -> None:
    given = replace(submission(**config), savepoint=savepoint("uid-sum", max_parallelism=64))
    found = checks.key_groups_are_the_savepoints(given)
    assert {v.max_parallelism for v in found.graph.vertices} == {expected}


@pytest.mark.parametrize(
    "check", [*checks.OF_THE_SAVEPOINT, checks.key_groups_are_the_savepoints, checks.states_to_ask_for]
)
def test_checks_of_a_savepoint_need_one(check) -> None:
    with pytest.raises(InternalError, match="begins anew"):
        check(submission())


# -- the lists ----------------------------------------------------------------------------


def test_the_first_refusal_ends_it_and_each_check_sees_what_the_one_before_made() -> None:
    seen: list[str] = []

    def naming(name: str):
        def check(given: Submission) -> Submission:
            seen.append(given.graph.name)
            return replace(given, graph=msgspec.structs.replace(given.graph, name=name))

        return check

    def refusing(given: Submission) -> Submission:
        raise SpecError("no")

    assert checks.passed(submission(), [naming("a"), naming("b")]).graph.name == "b"
    with pytest.raises(SpecError, match="no"):
        checks.passed(submission(), [naming("a"), refusing, naming("c")])
    assert seen == ["pipeline", "a", "pipeline"]
