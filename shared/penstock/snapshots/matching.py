"""Finds which operator of a job gets which operator's state of a savepoint. Pure functions.

First, uids that the user gave are compared. Other operators are found by their names
(``jobgraph.identity``): the state goes to the operator with which it has the most names in common. If two
have equally many, an equal meaning decides; otherwise no operator gets the state and the job is refused.
State is restored only if its meaning is the same, or if it only lost columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.jobgraph.identity import VERSION, OperatorIdentity, vertex_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.jobgraph import JobGraph
    from penstock.snapshots.footers import OperatorSummary

Verdict = Literal["kept", "converted", "changed"]


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of the job that starts from the savepoint."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    identity: OperatorIdentity = OperatorIdentity()


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """An operator of the savepoint and its counterpart in the job.

    ``stored``: the uid in the savepoint; ``uid``: the uid with which the job was planned. ``why``: a text
    for each part of the meaning that differs.
    """

    stored: str
    uid: str
    verdict: Verdict = "kept"
    why: tuple[str, ...] = ()
    #: Whether the state can be read although its meaning differs, because the types are the same.
    readable: bool = True


class Tie(msgspec.Struct, frozen=True, kw_only=True):
    """The state of ``stored`` may belong to any of ``candidates`` (uids of the job)."""

    stored: str
    candidates: tuple[str, ...]


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """The counterparts that were found, and the states for which several operators fit equally well."""

    pairs: tuple[Pair, ...] = ()
    ties: tuple[Tie, ...] = ()

    def renamed(self, kept: frozenset[str] = frozenset()) -> dict[str, str]:
        """Uid in the job → uid in the savepoint, for all state that is restored. ``kept``: uids (of either)
        whose state is restored although its meaning has changed."""
        return {
            p.uid: p.stored
            for p in self.pairs
            if p.verdict != "changed" or (p.readable and {p.uid, p.stored} & kept)
        }


def match(operators: Sequence[Operator], summaries: Sequence[OperatorSummary]) -> Matching:
    """Finds the counterparts. Every operator occurs at most once on either side."""
    open_ = _Open(list(operators), list(summaries))
    open_.by(_same_uid)
    open_.by(_same_plan)
    open_.by(lambda o, s: _shared(o, s) if _same_meaning(o, s) else 0)
    open_.by(_shared)
    ties = open_.ties(_shared)
    open_.by(_same_work)
    return Matching(pairs=tuple(_judged(o, s) for o, s in open_.pairs), ties=tuple(ties))


class _Open:
    """The operators that are not matched yet."""

    def __init__(self, operators: list[Operator], summaries: list[OperatorSummary]) -> None:
        self.operators = operators
        self.summaries = summaries
        self.pairs: list[tuple[Operator, OperatorSummary]] = []

    def by(self, score: Callable[[Operator, OperatorSummary], int]) -> None:
        """Pairs operators that are each other's only best match, until there are none left."""
        while True:
            scores = self._scores(score)
            found = []
            for s, own in scores.items():
                best = _only_best(own)
                if best is None:
                    continue
                back = {other: row[best] for other, row in scores.items() if best in row}
                if _only_best(back) == s:
                    found.append((best, s))
            if not found:
                return
            self.pairs += [(self.operators[o], self.summaries[s]) for o, s in found]
            gone_o, gone_s = {o for o, _ in found}, {s for _, s in found}
            self.operators = [o for i, o in enumerate(self.operators) if i not in gone_o]
            self.summaries = [s for i, s in enumerate(self.summaries) if i not in gone_s]

    def ties(self, score: Callable[[Operator, OperatorSummary], int]) -> list[Tie]:
        """The states that are left although operators of the job fit."""
        out = []
        for s, own in self._scores(score).items():
            summary = self.summaries[s]
            if own and holds_state(summary):
                best = max(own.values())
                uids = tuple(self.operators[o].uid for o, value in own.items() if value == best)
                out.append(Tie(stored=summary.uid, candidates=uids))
        return out

    def _scores(self, score: Callable[[Operator, OperatorSummary], int]) -> dict[int, dict[int, int]]:
        """Position of the stored operator → position of the job's operator → score, where it is above 0."""
        return {
            s: {
                o: value
                for o, operator in enumerate(self.operators)
                if (value := score(operator, summary)) > 0
            }
            for s, summary in enumerate(self.summaries)
        }


def _only_best(scores: dict[int, int]) -> int | None:
    if not scores:
        return None
    best = max(scores.values())
    found = [key for key, value in scores.items() if value == best]
    return found[0] if len(found) == 1 else None


def _same_uid(operator: Operator, summary: OperatorSummary) -> int:
    stored = summary.identity
    known = stored is None or stored.given or operator.identity.given or not stored.names
    return int(operator.uid == summary.uid and known)


def _same_plan(operator: Operator, summary: OperatorSummary) -> int:
    """Whether the sub-plan below the operator is exactly the same, with the same code."""
    own, stored = operator.identity, summary.identity
    if stored is None:
        return int(summary.uid in own.former)
    return _shared(operator, summary) if own.exact and own.exact == stored.exact else 0


def _shared(operator: Operator, summary: OperatorSummary) -> int:
    """The number of names that they have in common."""
    own, stored = operator.identity, summary.identity
    if stored is None or (own.given and stored.given):
        return 0
    return len(set(own.names) & set(stored.names))


def _same_meaning(operator: Operator, summary: OperatorSummary) -> bool:
    own, stored = operator.identity, summary.identity
    return stored is not None and bool(own.digest) and own.digest == stored.digest


def _same_work(operator: Operator, summary: OperatorSummary) -> int:
    """Whether the operator has the same meaning in another statement, for example after its table was
    renamed."""
    own, stored = operator.identity, summary.identity
    if stored is None or own.given or stored.given or not _same_meaning(operator, summary):
        return 0
    return int(bool(_roles(own) & _roles(stored)))


def _roles(identity: OperatorIdentity) -> set[str]:
    return {name.rpartition(": ")[2] for name in identity.names}


# -- meaning -------------------------------------------------------------------------------


def _judged(operator: Operator, summary: OperatorSummary) -> Pair:
    own, stored = operator.identity, summary.identity
    pair = Pair(stored=summary.uid, uid=operator.uid)
    if stored is None or not holds_state(summary) or own.digest == stored.digest:
        return pair
    if stored.version > VERSION:
        newer = f"its meaning is in version {stored.version}, this Penstock reads version {VERSION}"
        return msgspec.structs.replace(pair, verdict="changed", why=(newer,), readable=False)
    parts = dict.fromkeys((*stored.meaning, *own.meaning))
    differs = tuple(
        f"{part}: {stored.meaning.get(part, 'none')} → {own.meaning.get(part, 'none')}"
        for part in parts
        if stored.meaning.get(part) != own.meaning.get(part)
    )
    more = _columns_more(own, stored)
    if not differs and not more:
        return msgspec.structs.replace(pair, verdict="converted", why=_columns_less(own, stored))
    return msgspec.structs.replace(
        pair, verdict="changed", why=(*differs, *more), readable=own.layout == stored.layout
    )


def _columns_more(own: OperatorIdentity, stored: OperatorIdentity) -> tuple[str, ...]:
    """Columns that the savepoint does not have. Their values for earlier rows are unknown."""
    return tuple(
        f"{state}: {column} is not in the savepoint"
        for state, columns in own.columns.items()
        for column in columns
        if column not in stored.columns.get(state, ())
    )


def _columns_less(own: OperatorIdentity, stored: OperatorIdentity) -> tuple[str, ...]:
    left = tuple(
        f"{state}: without {column}"
        for state, columns in stored.columns.items()
        for column in columns
        if column not in own.columns.get(state, ())
    )
    return left or ("its columns are in another order",)


def holds_state(summary: OperatorSummary) -> bool:
    """Whether the operator holds more than a watermark and empty lists."""
    return any(s.rows > 0 and (s.name, s.kind) != ("watermark", "union") for s in summary.states)


# -- the job -------------------------------------------------------------------------------


def with_uids_of(graph: JobGraph, renamed: dict[str, str], stored: Sequence[str]) -> JobGraph:
    """The job with the uids of the savepoint, and with the vertex ids that follow from them.

    ``renamed``: uid in the job → uid in the savepoint. ``stored``: all uids of the savepoint; an operator
    that gets no state receives none of them.
    """
    taken = set(stored)
    uids: dict[str, str] = {}
    for vertex in graph.vertices:
        for node in vertex.operators:
            uid = renamed.get(node.uid)
            if uid is None:
                uid, number = node.uid, 0
                while uid in taken:
                    number += 1
                    uid = f"{node.uid}-{number}"
            taken.add(uid)
            uids[node.uid] = uid
    if all(old == new for old, new in uids.items()):
        return graph
    replace = msgspec.structs.replace
    ids = {
        v.id: vertex_id_of(uids[v.operators[0].uid]) if v.id == vertex_id_of(v.operators[0].uid) else v.id
        for v in graph.vertices
    }
    return replace(
        graph,
        vertices=tuple(
            replace(v, id=ids[v.id], operators=tuple(replace(n, uid=uids[n.uid]) for n in v.operators))
            for v in graph.vertices
        ),
        edges=tuple(
            replace(
                e,
                id=f"{ids[e.source]}-{ids[e.target]}-{e.target_gate}",
                source=ids[e.source],
                target=ids[e.target],
            )
            for e in graph.edges
        ),
    )
