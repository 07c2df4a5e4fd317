"""Restored states that the program does not ask for: they are kept for the next snapshot unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SnapshotError
from penstock.state import blocks
from penstock.state.keyed_state import StateRows, of_rows
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import KeyedBlock
    from penstock.state.epochs import Epochs
    from penstock.state.key_groups import KeyGroups

    #: (rows, schema) as they were restored.
    Stored = tuple[Sequence[pa.RecordBatch], dict[str, Any]]


class Unclaimed:
    """Rows by name. A delta holds nothing of a name that did not change, else all of it."""

    def __init__(self, space: blocks.KeyLayout, epochs: Epochs) -> None:
        self._space, self._epochs = space, epochs
        self._found: dict[str, list[Stored]] = {}
        #: By name: the epoch in which key groups of it came or went.
        self._changed: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._found)

    def add(self, name: str, batches: Sequence[pa.RecordBatch], schema: dict[str, Any]) -> None:
        """Rows of a snapshot, or of another subtask."""
        self._found.setdefault(name, []).append((batches, schema))
        self._changed[name] = self._epochs.now

    def take(self, names: Sequence[str]) -> list[Stored]:
        """The rows under the first of these names that there are any of: somebody asks for them."""
        name = next((n for n in names if n in self._found), None)
        return [] if name is None else self._found.pop(name)

    def cut(self) -> dict[str, KeyedBlock]:
        """All of it as blocks of a snapshot."""
        out = {}
        for name, found in self._found.items():
            batches = [batch for some, _ in found for batch in some]
            if any(schema != found[0][1] for _, schema in found):
                raise SnapshotError(
                    "state that nobody asks for has come in two forms",
                    expected="the form of one program",
                    got=f"forms {[schema for _, schema in found]}",
                    where=f"state '{name}'",
                    remedy="ask for the state in the program, or drop it from the savepoint",
                )
            if batches:
                delta = 0 < self._changed[name] <= self._epochs.since
                out[name] = blocks.regroup(self._space, batches, found[0][1], delta=delta)
        return out

    def exported(self, groups: KeyGroups) -> Iterator[StateRows]:
        """Rows of these groups."""
        for name, found in self._found.items():
            for batches, schema in found:
                types = [t.type_from_json(x) for x in schema["key_types"]]
                for batch in batches:
                    rows = StateRows(name, batch, schema, len(types))
                    chosen = groups.holds(rows.key_columns(types), batch.num_rows)
                    if chosen.any():
                        yield of_rows(rows, chosen)

    def drop(self, groups: KeyGroups) -> None:
        """Give up the rows of these groups."""
        for name, found in self._found.items():
            kept: list[Stored] = []
            for batches, schema in found:
                types = [t.type_from_json(x) for x in schema["key_types"]]
                rest = []
                for batch in batches:
                    rows = StateRows(name, batch, schema, len(types))
                    gone = groups.holds(rows.key_columns(types), batch.num_rows)
                    rest.append(batch if not gone.any() else of_rows(rows, ~gone).batch)
                    if gone.any():
                        self._changed[name] = self._epochs.now
                kept.append((rest, schema))
            found[:] = kept
