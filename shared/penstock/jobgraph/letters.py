"""The rows of dead letters: the columns that a table of them may have, and the side output that carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.specs import EnumeratorSpec
from penstock.types.logical import Field, IntType, Schema, TimestampLtzType, VarBinaryType, VarCharType

if TYPE_CHECKING:
    from penstock.jobgraph.specs import Spec

#: The side output to which an operator with ``on-error`` = dead-letter sends its letters.
LETTERS_TAG = "dead-letters"

#: The columns of a letter. ``position``: where the record lies; ``record``: the beginning of its text;
#: ``time``: when the record was set aside.
LETTER_SCHEMA = Schema(
    (
        Field("job_id", VarCharType(nullable=False)),
        Field("uid", VarCharType(nullable=False)),
        Field("operator", VarCharType(nullable=False)),
        Field("subtask", IntType(nullable=False)),
        Field("position", VarCharType(nullable=False)),
        Field("reason", VarCharType(nullable=False)),
        Field("record", VarCharType()),
        Field("bytes", VarBinaryType()),
        Field("time", TimestampLtzType(precision=3, nullable=False)),
    )
)


def keeps_letters(spec: Spec) -> bool:
    """Whether the operator sets records aside as dead letters."""
    if isinstance(spec, EnumeratorSpec):
        return False
    policy = getattr(spec, "on_error", None) or getattr(spec, "options", {}).get("on-error")
    return bool(policy == "dead-letter")
