"""Does a job fit a savepoint? What maps, what would be dropped, what is new. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import MAX_PARALLELISM, RECOVERY_IGNORE_UNCLAIMED
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.jobgraph import JobGraph
    from penstock.messages.footers import OperatorSummary
    from penstock.messages.manifest import CheckpointManifest

MAX_PARALLELISM_KEY = MAX_PARALLELISM.key
LENIENT_KEY = RECOVERY_IGNORE_UNCLAIMED.key


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """One operator on one side or both, by uid."""

    uid: str
    name: str
    #: ``name kind rows`` of its states in the savepoint
    states: tuple[str, ...] = ()
    rows: int = 0


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """``unread``: states of operators that are in both, which the job's functions do not ask
    for; ``dropped``: only those that hold state; ``problems``: why it cannot be restored;
    ``notes``: what could not be compared."""

    mapped: tuple[Mapped, ...] = ()
    unread: tuple[Mapped, ...] = ()
    dropped: tuple[Mapped, ...] = ()
    new: tuple[Mapped, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class DeclaredStates(msgspec.Struct, frozen=True, kw_only=True):
    """What a function of the job declares, beside what the savepoint has of its operator; names
    as in the savepoint (``value/count``). ``known``: False when nobody can tell before it runs."""

    known: bool = True
    #: in the savepoint, and not asked for
    unread: tuple[str, ...] = ()
    #: asked for, and not in the savepoint
    new: tuple[str, ...] = ()
    #: in the savepoint, not to be read as declared
    unreadable: tuple[str, ...] = ()
    #: a sentence for each of those
    problems: tuple[str, ...] = ()


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """Of the job that is to begin from the savepoint."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int


def operators_of(graph: JobGraph) -> list[Operator]:
    return [
        Operator(uid=n.uid, name=n.name, parallelism=v.parallelism, max_parallelism=v.max_parallelism)
        for v in graph.vertices
        for n in v.operators
    ]


def _mapped(summary: OperatorSummary, only: Collection[str] | None = None) -> Mapped:
    """``only``: these of its states."""
    chosen = [s for s in summary.states if only is None or s.name in only]
    states = tuple(f"{s.name} ({s.kind}, {s.rows:,} rows)" for s in chosen)
    return Mapped(uid=summary.uid, name=summary.name, states=states, rows=sum(s.rows for s in chosen))


def _would_be_missed(summary: OperatorSummary) -> bool:
    """It holds more than where its event time stood: a local aggregation, which is planned
    from parallelism 2 on, holds nothing else."""
    return any((state.name, state.kind) != ("watermark", "union") for state in summary.states)


def compare(
    operators: Sequence[Operator], summaries: Sequence[OperatorSummary], *, own_max_parallelism: bool = False
) -> Difference:
    """By operator uid; ``summaries``: of the savepoint (``footers.summarise``);
    ``own_max_parallelism``: the job insists on its own (else it takes the savepoint's)."""
    mine = {operator.uid: operator for operator in operators}
    known = {summary.uid for summary in summaries}
    problems = []
    for summary in summaries:
        operator = mine.get(summary.uid)
        if operator is None or not summary.states:
            continue
        name = f"operator '{summary.name}' ({summary.uid})"
        if operator.parallelism > summary.max_parallelism:
            problems.append(
                f"{name}: parallelism {operator.parallelism} is more than the savepoint's max parallelism, "
                f"{summary.max_parallelism}"
            )
        elif own_max_parallelism and operator.max_parallelism != summary.max_parallelism:
            problems.append(
                f"{name}: {MAX_PARALLELISM_KEY} is {operator.max_parallelism}, the savepoint's "
                f"{summary.max_parallelism}"
            )
    return Difference(
        mapped=tuple(_mapped(s) for s in summaries if s.uid in mine and s.states),
        dropped=tuple(_mapped(s) for s in summaries if s.uid not in mine and _would_be_missed(s)),
        new=tuple(Mapped(uid=uid, name=o.name) for uid, o in mine.items() if uid not in known),
        problems=tuple(problems),
    )


def by_state(
    difference: Difference,
    summaries: Sequence[OperatorSummary],
    declared: Mapping[str, DeclaredStates],
) -> Difference:
    """The same, with the states of operators whose functions were asked (by uid) one by one."""
    mapped, unread, new, problems, unknown = [], [], list(difference.new), list(difference.problems), []
    summary_of = {summary.uid: summary for summary in summaries}
    for operator in difference.mapped:
        found = declared.get(operator.uid)
        if found is None:
            mapped.append(operator)
            continue
        problems += found.problems
        unknown += [] if found.known else [f"'{operator.name}' ({operator.uid})"]
        gone = {*found.unreadable, *(found.unread if found.known else ())}
        summary = summary_of[operator.uid]
        if left := {s.name for s in summary.states} - gone:
            mapped.append(_mapped(summary, left))
        if found.known and found.unread:
            unread.append(_mapped(summary, found.unread))
        if found.known and found.new:
            new.append(Mapped(uid=operator.uid, name=operator.name, states=found.new))
    notes = difference.notes
    if unknown:
        notes += (
            "states of Python functions are known only when they run: compared by operator: "
            + ", ".join(unknown),
        )
    return msgspec.structs.replace(
        difference,
        mapped=tuple(mapped),
        unread=tuple(unread),
        new=tuple(new),
        problems=tuple(problems),
        notes=notes,
    )


def check(difference: Difference, where: str, *, lenient: bool) -> None:
    """SpecError with the difference when the job cannot begin from the savepoint."""
    if difference.problems:
        raise SpecError(
            "the job does not fit the savepoint",
            expected="the same max parallelism, and no more subtasks than that",
            got="; ".join(difference.problems),
            where=where,
            remedy=f"lower the parallelism; leave {MAX_PARALLELISM_KEY} out: it is the savepoint's",
        )
    if difference.dropped and not lenient:
        new = ", ".join(f"'{m.name}' ({m.uid})" for m in difference.new)
        raise SpecError(
            "the savepoint holds state of operators that this job does not have"
            + ("" if difference.mapped else ": it is of another job"),
            expected="an operator with the same uid for all of its state"
            + (f"; the job has these that the savepoint does not know: {new}" if new else ""),
            got=", ".join(f"'{m.name}' ({m.uid}): {', '.join(m.states)}" for m in difference.dropped),
            where=where,
            remedy="restore the program it was taken from, give its operators their uids back, or allow it "
            f"to be dropped with --allow-non-restored-state ({LENIENT_KEY})",
        )


def fitted(graph: JobGraph, manifest: CheckpointManifest) -> JobGraph:
    """The job with the savepoint's max parallelism, in which its key groups are numbered; for
    vertices that it does not know, that of the others."""
    by_uid = {uid: vertex.max_parallelism for vertex in manifest.vertices for uid in vertex.uids}
    usual = max(by_uid.values(), default=0)

    def of(vertex_uids: Sequence[str], own: int, parallelism: int) -> int:
        if MAX_PARALLELISM.read(graph.config) > 0:
            return own
        known = [by_uid[uid] for uid in vertex_uids if uid in by_uid]
        found = known[0] if known else usual
        return found if found >= parallelism else own

    return msgspec.structs.replace(
        graph,
        vertices=tuple(
            msgspec.structs.replace(
                v, max_parallelism=of([n.uid for n in v.operators], v.max_parallelism, v.parallelism)
            )
            for v in graph.vertices
        ),
    )
