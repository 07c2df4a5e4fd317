"""The identity of an operator: its names and the meaning of its state, independent of the rest of the job.

The *names* find an operator's state in a savepoint of another version of the job. The *meaning* decides
whether that state is still right (``snapshots.matching``; ``docs/state.md`` gives the reasons).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The version of the meanings below. A reader compares meanings of its own version and of the one before.
VERSION = 1


class OperatorIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one operator.

    ``given``: the user wrote the uid. ``names``: one for each statement that the operator feeds.
    ``meaning``: part (``keys``, ``input`` …) → words; an operator without state has none. ``columns``:
    state → the content of each of its columns, for states that may lose columns. ``former``: uids of the
    same operator in the previous version of the job.
    """

    version: int = VERSION
    given: bool = False
    names: tuple[str, ...] = ()
    meaning: dict[str, str] = {}
    columns: dict[str, tuple[str, ...]] = {}
    former: tuple[str, ...] = ()
    #: Hash of the exact sub-plan and of the code of its functions. It distinguishes operators with the same
    #: names and the same meaning, such as steps of a program that differ only in their functions.
    exact: str = ""
    #: The types of the stored state. State of another layout cannot be read.
    layout: str = ""

    @property
    def digest(self) -> str:
        """16 hex digits of the hash of the meaning; empty if there is no meaning to compare."""
        if not self.meaning and not self.columns:
            return ""
        data = msgspec.json.encode([self.version, self.meaning, self.columns], order="sorted")
        return hashlib.sha256(data).hexdigest()[:16]


def identities(operators: Iterable[Any]) -> msgspec.Raw:
    """A JSON object uid → identity, as snapshots keep it. ``operators``: ``OperatorNode``s."""
    return msgspec.Raw(msgspec.json.encode({node.uid: node.identity for node in operators}))


def vertex_id_of(uid: str) -> str:
    """The id of a vertex from the uid of its first operator: 32 hex digits, as Flink's clients expect."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]
