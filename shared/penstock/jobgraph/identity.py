"""What an operator is called and what its state means, independent of the rest of the job.

The *names* find an operator's state in a savepoint of another version of the job; the *meaning*
decides whether that state is still right (``messages.matching``; the reasons: ``docs/state.md``).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Of the meanings below. A reader compares those of its own version and of the one before.
VERSION = 1


class OperatorIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """``given``: the uid was written by the user. ``names``: one a statement that the operator
    feeds. ``meaning``: part (``keys``, ``input`` …) → words; operators without state have none.
    ``columns``: state → what each of its columns holds, for states that may lose columns.
    ``former``: uids of the same operator in the version before this one."""

    version: int = VERSION
    given: bool = False
    names: tuple[str, ...] = ()
    meaning: dict[str, str] = {}
    columns: dict[str, tuple[str, ...]] = {}
    former: tuple[str, ...] = ()
    #: Hash of the sub-plan to the letter, with the code of its functions: tells apart what has the same
    #: names and means the same, such as steps of a program that differ in their functions alone.
    exact: str = ""
    #: Types of what is stored: state of another layout cannot be read at all.
    layout: str = ""

    @property
    def digest(self) -> str:
        """16 hex digits of the meaning; empty when there is none to compare."""
        if not self.meaning and not self.columns:
            return ""
        data = msgspec.json.encode([self.version, self.meaning, self.columns], order="sorted")
        return hashlib.sha256(data).hexdigest()[:16]


def identities(operators: Iterable[Any]) -> msgspec.Raw:
    """Uid → identity, as snapshots keep it (JSON). ``operators``: job graph nodes."""
    return msgspec.Raw(msgspec.json.encode({node.uid: node.identity for node in operators}))


def vertex_id_of(uid: str) -> str:
    """32 hex digits, as Flink's clients expect them, of a vertex's first operator."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]
