"""Whether a job fits a savepoint: what is restored, what would be dropped, and what is new. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import MAX_PARALLELISM, RECOVERY_IGNORE_UNCLAIMED, RECOVERY_KEEP_STATE
from penstock.errors import SpecError
from penstock.snapshots.matching import Operator, holds_state, match, with_uids_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.jobgraph import JobGraph
    from penstock.snapshots.footers import OperatorSummary
    from penstock.snapshots.manifest import CheckpointManifest
    from penstock.snapshots.matching import Pair

MAX_PARALLELISM_KEY = MAX_PARALLELISM.key
LENIENT_KEY = RECOVERY_IGNORE_UNCLAIMED.key
KEEP_KEY = RECOVERY_KEEP_STATE.key


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of the savepoint, of the job, or of both."""

    uid: str
    name: str
    #: Name, kind and number of rows of each of its states in the savepoint, as texts.
    states: tuple[str, ...] = ()
    rows: int = 0
    #: How its meaning differs: a text for each part.
    why: tuple[str, ...] = ()
    #: Whether the job's operator can read the state. If not, the state has another layout and cannot be kept.
    readable: bool = True


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between a job and a savepoint.

    ``mapped``: restored unchanged. ``converted``: restored without some columns. ``changed``: not
    restored, because the state has another meaning in the job. ``ambiguous``: may be the state of several
    operators. ``unread``: states of operators of both, for which the job's functions do not ask.
    ``dropped``: operators with state that the job does not have. ``new``: operators without state in the
    savepoint. ``problems``: why the savepoint cannot be restored. ``notes``: what could not be compared.
    ``uids``: uid in the job → uid in the savepoint, for all that is restored.
    """

    mapped: tuple[Mapped, ...] = ()
    converted: tuple[Mapped, ...] = ()
    changed: tuple[Mapped, ...] = ()
    ambiguous: tuple[Mapped, ...] = ()
    unread: tuple[Mapped, ...] = ()
    dropped: tuple[Mapped, ...] = ()
    new: tuple[Mapped, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    uids: dict[str, str] = {}


class DeclaredStates(msgspec.Struct, frozen=True, kw_only=True):
    """The states that a function of the job declares, compared with those of its operator in the savepoint.
    Names are those of the savepoint (``value/count``). ``known``: False if the states are known only when
    the function runs."""

    known: bool = True
    #: States of the savepoint that the function does not declare.
    unread: tuple[str, ...] = ()
    #: Declared states that the savepoint does not have.
    new: tuple[str, ...] = ()
    #: States of the savepoint that cannot be read as the function declares them.
    unreadable: tuple[str, ...] = ()
    #: A text for each unreadable state.
    problems: tuple[str, ...] = ()


def operators_of(graph: JobGraph) -> list[Operator]:
    """All operators of a job graph."""
    return [
        Operator(
            uid=n.uid,
            name=n.name,
            parallelism=v.parallelism,
            max_parallelism=v.max_parallelism,
            identity=n.identity,
        )
        for v in graph.vertices
        for n in v.operators
    ]


def _mapped(
    summary: OperatorSummary, only: Collection[str] | None = None, why: tuple[str, ...] = ()
) -> Mapped:
    """``only``: the names of the states to include; None: all."""
    chosen = [s for s in summary.states if only is None or s.name in only]
    states = tuple(f"{s.name} ({s.kind}, {s.rows:,} rows)" for s in chosen)
    return Mapped(
        uid=summary.uid, name=summary.name, states=states, rows=sum(s.rows for s in chosen), why=why
    )


def compare(
    operators: Sequence[Operator],
    summaries: Sequence[OperatorSummary],
    *,
    own_max_parallelism: bool = False,
    keep: Iterable[str] = (),
) -> Difference:
    """What happens to the state of each operator (``matching.match``).

    ``summaries``: of the savepoint (``footers.summarise``). ``own_max_parallelism``: the job sets its own
    max parallelism; otherwise it takes the savepoint's. ``keep``: uids whose state is restored although
    its meaning has changed.
    """
    kept = frozenset(keep)
    matching = match(operators, summaries)
    uids = matching.renamed(kept)
    pair_of = {p.stored: p for p in matching.pairs}
    mine = {operator.uid: operator for operator in operators}
    tied = {tie.stored: tie for tie in matching.ties}
    mapped, converted, changed, ambiguous, dropped, problems = [], [], [], [], [], []
    for summary in summaries:
        pair = pair_of.get(summary.uid)
        if pair is None:
            if summary.uid in tied:
                why = tuple(f"'{mine[c].name}' ({c})" for c in tied[summary.uid].candidates)
                ambiguous.append(_mapped(summary, why=why))
            elif holds_state(summary):
                dropped.append(_mapped(summary))
            continue
        if not summary.states:
            continue
        if pair.uid not in uids:
            changed.append(msgspec.structs.replace(_mapped(summary, why=pair.why), readable=pair.readable))
            problems += _unkeepable(pair, mine[pair.uid], summary, kept)
            continue
        problems += _parallelism_problems(mine[pair.uid], summary, own_max_parallelism)
        if pair.verdict == "converted":
            converted.append(_mapped(summary, why=pair.why))
        else:
            mapped.append(_mapped(summary))
    known = {pair.uid for pair in matching.pairs if pair.uid in uids}
    notes = tuple(
        f"restored as --keep-state says, although its meaning has changed: '{mine[p.uid].name}' ({p.stored}): "
        + "; ".join(p.why)
        for p in matching.pairs
        if p.verdict == "changed" and p.uid in uids
    )
    return Difference(
        mapped=tuple(mapped),
        converted=tuple(converted),
        changed=tuple(changed),
        ambiguous=tuple(ambiguous),
        dropped=tuple(dropped),
        new=tuple(Mapped(uid=uid, name=o.name) for uid, o in mine.items() if uid not in known),
        problems=tuple(problems),
        notes=notes,
        uids=uids,
    )


def kept_uids(config: Mapping[str, str]) -> tuple[str, ...]:
    """The uids that the configuration names to keep their state (``--keep-state``)."""
    return tuple(uid for part in RECOVERY_KEEP_STATE.read(config).split(";") if (uid := part.strip()))


def _unkeepable(pair: Pair, operator: Operator, summary: OperatorSummary, kept: Collection[str]) -> list[str]:
    name = f"operator '{summary.name}' ({summary.uid})"
    if {pair.uid, pair.stored} & set(kept):
        return [
            f"{name}: its state has another layout, so --keep-state cannot keep it: {'; '.join(pair.why)}"
        ]
    if operator.identity.given:
        return [
            f"{name}: the uid is the same, what it keeps is not ({'; '.join(pair.why)}); give the operator "
            "another uid to begin without the state"
        ]
    return []


def _parallelism_problems(
    operator: Operator, summary: OperatorSummary, own_max_parallelism: bool
) -> list[str]:
    name = f"operator '{summary.name}' ({summary.uid})"
    if operator.parallelism > summary.max_parallelism:
        return [
            f"{name}: parallelism {operator.parallelism} is more than the savepoint's max parallelism, "
            f"{summary.max_parallelism}"
        ]
    if own_max_parallelism and operator.max_parallelism != summary.max_parallelism:
        return [
            f"{name}: {MAX_PARALLELISM_KEY} is {operator.max_parallelism}, the savepoint's "
            f"{summary.max_parallelism}"
        ]
    return []


def by_state(
    difference: Difference,
    summaries: Sequence[OperatorSummary],
    declared: Mapping[str, DeclaredStates],
) -> Difference:
    """``difference`` with the operators in ``declared`` (by uid) compared state by state."""
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
    """Raises SpecError, which describes the difference, if the job cannot begin from the savepoint at
    ``where``.

    ``lenient``: state that is ambiguous, changed or dropped is allowed to be lost.
    """
    if difference.problems:
        raise SpecError(
            "the job does not fit the savepoint",
            expected="the same max parallelism, no more subtasks than that, and state that can be read",
            got="; ".join(difference.problems),
            where=where,
            remedy=f"lower the parallelism; leave {MAX_PARALLELISM_KEY} out: it is the savepoint's",
        )
    if lenient:
        return
    if difference.ambiguous:
        raise SpecError(
            "it is not clear whose state of the savepoint is whose in this job",
            expected="names that are different: a label for each of several INSERTs into one table, a uid for "
            "each of several scans of one table",
            got="; ".join(f"{_named(m)} may be that of {' or '.join(m.why)}" for m in difference.ambiguous),
            where=where,
            remedy="INSERT INTO t /*+ OPTIONS('uid' = 'a label') */ and FROM t /*+ OPTIONS('uid' = 'a uid') */, "
            f"before the next savepoint; or drop the state with --allow-non-restored-state ({LENIENT_KEY})",
        )
    if difference.changed:
        keepable = [m.uid for m in difference.changed if m.readable]
        keep = (
            f"; or keep the state as it is with --keep-state {keepable[0]} ({KEEP_KEY})"
            if keepable
            else "; columns that the state has can be read on, e.g. by an INSERT into a 'blackhole' table"
            if any("columns: " in why for m in difference.changed for why in m.why)
            else ""
        )
        raise SpecError(
            "the savepoint's state means something else than this job does",
            expected="the same keys, functions, windows and filters below for state that is kept",
            got="; ".join(f"{_named(m)}: {'; '.join(m.why)}" for m in difference.changed),
            where=where,
            remedy=f"undo the change{keep}; or drop the state with --allow-non-restored-state ({LENIENT_KEY})",
        )
    if difference.dropped:
        new = ", ".join(f"'{m.name}' ({m.uid})" for m in difference.new)
        raise SpecError(
            "the savepoint holds state of operators that this job does not have"
            + ("" if difference.mapped or difference.converted else ": it is of another job"),
            expected="an operator with the same uid or name for all of its state"
            + (f"; the job has these that the savepoint does not know: {new}" if new else ""),
            got=", ".join(f"{_named(m)}: {', '.join(m.states)}" for m in difference.dropped),
            where=where,
            remedy="restore the program it was taken from, give its operators their uids back, or allow it "
            f"to be dropped with --allow-non-restored-state ({LENIENT_KEY})",
        )


def _named(operator: Mapped) -> str:
    return f"'{operator.name}' ({operator.uid})"


def adopted(graph: JobGraph, difference: Difference, summaries: Sequence[OperatorSummary]) -> JobGraph:
    """The job with the uids of the savepoint, by which its state is found."""
    return with_uids_of(graph, difference.uids, [s.uid for s in summaries])


def fitted(graph: JobGraph, manifest: CheckpointManifest) -> JobGraph:
    """The job with the max parallelism of the savepoint, on which its key groups depend. A vertex that the
    savepoint does not know gets the highest one of the others. A max parallelism that the job sets itself
    stays."""
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
