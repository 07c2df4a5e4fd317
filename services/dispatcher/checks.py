"""The checks that a submitted job must pass before it is accepted, as lists in their order.

A check is a pure function: it raises an error that says what to do, or returns the submission, completed
if that is its task. What a check needs from outside (the content of the savepoint, the states that the
program's functions declare) the submitter reads between the lists, and puts into the submission.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    from collections.abc import Callable, Iterable, Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.cluster import JobSpec
    from penstock.snapshots.footers import OperatorSummary
    from penstock.snapshots.manifest import CheckpointManifest

    Check = Callable[["Submission"], "Submission"]


@dataclass(frozen=True)
class Savepoint:
    """The savepoint from which the job begins. ``summaries``: the state of each of its operators."""

    path: str
    manifest: CheckpointManifest
    summaries: list[OperatorSummary]


@dataclass(frozen=True)
class Submission:
    """A submission and what is known of it. ``storage_url``: the cluster's object store. ``defaults``: the options of
    jobs in the cluster's configuration. ``savepoint``: None
    for a job that begins without one. ``state_problems``: why states that the program declares cannot be
    read from the savepoint."""

    spec: JobSpec
    graph: JobGraph
    storage_url: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    savepoint: Savepoint | None = None
    state_problems: tuple[str, ...] = ()


def passed(submission: Submission, checks: Iterable[Check]) -> Submission:
    """The submission after all checks. Raises the error of the first check that refuses it."""
    for check_one in checks:
        submission = check_one(submission)
    return submission


# -- of the plan --------------------------------------------------------------------------


def spec_over_program(submission: Submission) -> Submission:
    """Name and configuration: those of the spec take precedence over those of the program, and these over the
    cluster's defaults."""
    spec, graph = submission.spec, submission.graph
    config = {**submission.defaults, **graph.config} | {
        key: as_text(value) for key, value in spec.config.items()
    }
    name = spec.name or graph.name or "job"
    return replace(submission, graph=msgspec.structs.replace(graph, name=name, config=config))


def sinks_keep_their_promise(submission: Submission) -> Submission:
    """Raises SpecError if a sink cannot keep its guarantee with the job's checkpoints."""
    check_guarantees(submission.graph)
    return submission


def spark_reaches_its_checkpoints(submission: Submission) -> Submission:
    """Raises SpecError if Structured Streaming would have to keep its checkpoints in a bucket."""
    check_stream_store(submission.graph, submission.storage_url)
    return submission


# -- of the savepoint ---------------------------------------------------------------------


def savepoint_is_this_jobs(submission: Submission) -> Submission:
    """Raises SpecError, with the difference, if the savepoint does not fit the job. The graph receives the
    uids of the savepoint."""
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
    """Raises SpecError if the program declares states with types to which the stored ones cannot be
    converted."""
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
    """The graph receives the savepoint's max parallelism, which is the number of its key groups."""
    return replace(submission, graph=fitted(submission.graph, _savepoint(submission).manifest))


#: The checks of a planned job.
OF_THE_PLAN: tuple[Check, ...] = (
    spec_over_program,
    sinks_keep_their_promise,
    spark_reaches_its_checkpoints,
)
#: The checks of a job that begins from a savepoint, when the savepoint has been read.
OF_THE_SAVEPOINT: tuple[Check, ...] = (savepoint_is_this_jobs,)
#: The checks of such a job, when the states that the program's functions declare are known.
OF_THE_STATES: tuple[Check, ...] = (states_are_readable, key_groups_are_the_savepoints)


def states_to_ask_for(submission: Submission) -> dict[str, dict[str, Any]]:
    """Uid → state name → schema of the stored states of process functions. Only the user's code tells which
    states it declares."""
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
