"""What DELETE and UPDATE ask of a connector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The option by which a writer learns that its rows are those of DELETE or UPDATE: a ``RowChange`` in JSON.
ROW_CHANGE = "sink.row-change"


@dataclass(frozen=True, slots=True)
class ChangedBy:
    """How DELETE and UPDATE change a table.

    Args:
        whole: The writer gets all rows as they are afterwards, and replaces the table by them. If not, it gets the rows
            that go, or the changed ones.
        options: Options with which the table is read and written, so that both mean the same version of it.
    """

    whole: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


class RowChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The statement. ``delete``: it is DELETE; ``columns``: indices of the columns that UPDATE assigns."""

    delete: bool
    columns: tuple[int, ...] = ()


def row_change(options: Mapping[str, str]) -> RowChange | None:
    """The statement whose rows a writer gets; None: they are those of an INSERT."""
    text = options.get(ROW_CHANGE)
    return None if text is None else msgspec.json.decode(text, type=RowChange)
