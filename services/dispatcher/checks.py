"""What a submitted job passes through before it is accepted, as lists of checks in their order.

A check is a pure function: it refuses the submission with an error that says what to do, or hands on the next one,
completed where that is its task. What a check needs from outside (the contents of the savepoint, what the program's
functions say of their states) the submitter reads between the lists, and puts into the submission.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import MAX_PARALLELISM, RECOVERY_IGNORE_UNCLAIMED
from penstock.errors import InternalError, SpecError
from penstock.jobgraph.specs import KeyedProcessSpec
from penstock.plan.engine import check_stream_store
from penstock.snapshots.compatibility import adopted, check, compare, fitted, kept_uids, operators_of
from penstock_services.dispatcher.guarantees import check_guarantees
from penstock_services.dispatcher.spec import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.jobgraph import JobGraph
    from penstock.messages.cluster import JobSpec
    from penstock.snapshots.footers import OperatorSummary
    from penstock.snapshots.manifest import CheckpointManifest

    Check = Callable[["Submission"], "Submission"]


@dataclass(frozen=True)
class Savepoint:
    """What the job begins from. ``summaries``: what each of its operators holds."""

    path: str
    manifest: CheckpointManifest
    summaries: list[OperatorSummary]


@dataclass(frozen=True)
class Submission:
    """``storage_url``: of the cluster's object store. ``savepoint``: None for a job that begins anew.
    ``state_problems``: why states that the program declares cannot be read from the savepoint."""

    spec: JobSpec
    graph: JobGraph
    storage_url: str
    savepoint: Savepoint | None = None
    state_problems: tuple[str, ...] = ()


def passed(submission: Submission, checks: Iterable[Check]) -> Submission:
    """The submission behind all of the checks; the error of the first that refuses it."""
    for check_one in checks:
        submission = check_one(submission)
    return submission


# -- of the plan --------------------------------------------------------------------------


def spec_over_program(submission: Submission) -> Submission:
    """Name and configuration: what the spec says wins over what the program says."""
    spec, graph = submission.spec, submission.graph
    config = graph.config | {key: as_text(value) for key, value in spec.config.items()}
    name = spec.name or graph.name or "job"
    return replace(submission, graph=msgspec.structs.replace(graph, name=name, config=config))


def sinks_keep_their_promise(submission: Submission) -> Submission:
    """SpecError when a sink cannot give the guarantee that it promises with these checkpoints."""
    check_guarantees(submission.graph)
    return submission


def spark_reaches_its_checkpoints(submission: Submission) -> Submission:
    """SpecError when Structured Streaming would keep its checkpoints in a bucket."""
    check_stream_store(submission.graph, submission.storage_url)
    return submission


# -- of the savepoint ---------------------------------------------------------------------


def savepoint_is_this_jobs(submission: Submission) -> Submission:
    """SpecError with the difference when the savepoint is another job's. The graph takes over its uids."""
    savepoint = _savepoint(submission)
    graph, summaries = submission.graph, savepoint.summaries
    difference = compare(
        operators_of(graph),
        summaries,
        own_max_parallelism=MAX_PARALLELISM.read(graph.config) > 0,
        keep=kept_uids(graph.config),
    )
    check(difference, savepoint.path, lenient=RECOVERY_IGNORE_UNCLAIMED.read(graph.config))
    graph = msgspec.structs.replace(adopted(graph, difference, summaries), matched_to=savepoint.path)
    return replace(submission, graph=graph)


def states_are_readable(submission: Submission) -> Submission:
    """SpecError when the program declares its states with types that the stored ones do not become."""
    if submission.state_problems:
        raise SpecError(
            "the savepoint holds state that cannot be read as it is declared",
            expected="the stored type, or one that it widens to",
            got="; ".join(submission.state_problems),
            where=_savepoint(submission).path,
            remedy="declare the stored type, or give the new state another name",
        )
    return submission


def key_groups_are_the_savepoints(submission: Submission) -> Submission:
    """The graph takes over the savepoint's max parallelism, in which its key groups are numbered."""
    return replace(submission, graph=fitted(submission.graph, _savepoint(submission).manifest))


#: As soon as the job is planned.
OF_THE_PLAN: tuple[Check, ...] = (
    spec_over_program,
    sinks_keep_their_promise,
    spark_reaches_its_checkpoints,
)
#: Of a job that begins from a savepoint: when that has been read …
OF_THE_SAVEPOINT: tuple[Check, ...] = (savepoint_is_this_jobs,)
#: … and when the program's functions have been asked for the states that they declare.
OF_THE_STATES: tuple[Check, ...] = (states_are_readable, key_groups_are_the_savepoints)


def states_to_ask_for(submission: Submission) -> dict[str, dict[str, Any]]:
    """Uid → name → schema of the stored states of process functions: only the user's code says what it declares."""
    declaring = {
        node.uid
        for vertex in submission.graph.vertices
        for node in vertex.operators
        if isinstance(node.spec, KeyedProcessSpec)
    }
    summaries = _savepoint(submission).summaries
    return {s.uid: {state.name: state.schema for state in s.states} for s in summaries if s.uid in declaring}


def _savepoint(submission: Submission) -> Savepoint:
    if submission.savepoint is None:
        raise InternalError("a check of a savepoint was given a job that begins anew")
    return submission.savepoint
