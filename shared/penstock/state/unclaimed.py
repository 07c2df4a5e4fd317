"""Restored states for which the program has not asked: they are kept for the next snapshot unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from penstock.errors import SnapshotError
from penstock.snapshots.contract import BESIDE
from penstock.state import blocks
from penstock.state.keyed_state import StateRows, of_rows
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import KeyedBlock
    from penstock.state.epochs import Epochs
    from penstock.state.key_groups import KeyGroups

    #: (rows, schema) as they were restored.
    Stored = tuple[Sequence[pa.RecordBatch], dict[str, Any]]


#: The parts of a schema that determine how rows are read.
_FORM = ("kind", "key_types", "types", "identity")


def replaced(names: Sequence[str], name: str, schema: Mapping[str, Any]) -> bool:
    """Whether rows under ``name`` belong to another state than the one with ``names`` (the present one
    first): the program that wrote them already had that state under a later one of the names."""
    return not set(names[: names.index(name)]).isdisjoint(schema.get(BESIDE, ()))


def _form(schema: Mapping[str, Any]) -> list[Any]:
    return [schema.get(part) for part in _FORM]


def _living(batch: pa.RecordBatch, schema: Mapping[str, Any], as_in: Mapping[str, Any]) -> pa.RecordBatch:
    """The rows with the time to live of another schema. The time when they were written stays the same."""
    if schema.get("ttl_ms") == as_in.get("ttl_ms"):
        return batch
    at = batch.schema.names.index("expires_ms")
    expires = pc.add(batch.column(at), as_in["ttl_ms"] - schema["ttl_ms"])
    return batch.set_column(at, batch.schema.field(at), expires)


def _common(names: Iterable[Iterable[str]]) -> list[str]:
    """The names that all have, sorted."""
    return sorted(frozenset.intersection(*map(frozenset, names)))


class Unclaimed:
    """Restored rows by state name. A delta contains all rows of a state whose key groups changed, and none of
    the others."""

    def __init__(self, space: blocks.KeyLayout, epochs: Epochs) -> None:
        self._space, self._epochs = space, epochs
        self._found: dict[str, list[Stored]] = {}
        #: State name → the epoch in which key groups of it last came or went.
        self._changed: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The names of all states."""
        return list(self._found)

    def add(self, name: str, batches: Sequence[pa.RecordBatch], schema: dict[str, Any]) -> None:
        """Adds rows of a snapshot, or of another subtask."""
        self._found.setdefault(name, []).append((batches, schema))
        self._changed[name] = self._epochs.now

    def take(self, names: Sequence[str]) -> list[Stored]:
        """Removes and returns the rows of a state that the program has asked for. ``names``: its name, and
        its former names."""
        out: list[Stored] = []
        for name in names:
            found = self._found.pop(name, [])
            kept = [stored for stored in found if replaced(names, name, stored[1])]
            if kept:
                self._found[name] = kept
                self._changed[name] = self._epochs.now
            out += [stored for stored in found if not replaced(names, name, stored[1])]
        return out

    def cut(self) -> dict[str, KeyedBlock]:
        """All rows as blocks of a snapshot. Raises SnapshotError if the rows of a state have two forms."""
        out = {}
        for name, found in self._found.items():
            schemas = [schema for some, schema in found if len(some)]
            other = next((schema for schema in schemas if _form(schema) != _form(schemas[0])), None)
            if other is not None:
                raise SnapshotError(
                    "restored state that nobody has asked for yet is there in two forms",
                    expected="one form, which a snapshot object has of each state",
                    got=f"{schemas[0]['columns']} and {other['columns']}",
                    where=f"state '{name}'",
                    remedy="ask for the state in the function's open(), so that all of it is in the present form",
                )
            if schemas:
                batches = [_living(batch, schema, schemas[0]) for some, schema in found for batch in some]
                delta = 0 < self._changed[name] <= self._epochs.since
                schema = {**schemas[0], BESIDE: _common(schema.get(BESIDE, ()) for schema in schemas)}
                out[name] = blocks.regroup(self._space, batches, schema, delta=delta)
        return out

    def exported(self, groups: KeyGroups) -> Iterator[StateRows]:
        """The rows of these key groups."""
        for name, found in self._found.items():
            for batches, schema in found:
                types = [t.type_from_json(x) for x in schema["key_types"]]
                for batch in batches:
                    rows = StateRows(name, batch, schema, len(types))
                    chosen = groups.holds(rows.key_columns(types), batch.num_rows)
                    if chosen.any():
                        yield of_rows(rows, chosen)

    def drop(self, groups: KeyGroups) -> None:
        """Removes the rows of these key groups."""
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
