"""Converts the states and timers of a key store to rows and back (``docs/state-format.md``).

An *entry* identifies a value in a table: a key, or (key, namespace); for a timer it is (time, entry).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.snapshots.by_key import without_removed
from penstock.state import blocks, states
from penstock.state.descriptors import MapStateDescriptor
from penstock.state.evolution import converter
from penstock.state.keyed_state import PIECE_ROWS, StateRows
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.state.descriptors import StateDescriptor
    from penstock.state.key_changes import KeyChanges, KeyCut
    from penstock.state.key_groups import KeyGroups
    from penstock.state.timers import TimerQueue

_BIGINT = t.BigIntType()


@dataclass(frozen=True, slots=True)
class EntryRows:
    """The rows of one state, or of one kind of timers.

    ``entries()``: all (entry, value) at this moment, while the table may change. ``copy``: copies a value
    that may change in place. ``make(entries, values)``: the rows; None marks a removed entry. ``key_of``:
    the key of an entry. ``remove``: removes an entry.
    """

    name: str
    form: blocks.RowForm
    changes: KeyChanges
    entries: Callable[[], Iterator[tuple[Any, Any]]]
    make: Callable[[Sequence[Any], Sequence[Any]], pa.RecordBatch]
    key_of: Callable[[Any], Any]
    remove: Callable[[Any], None]
    copy: Callable[[Any], Any] | None = None

    def cut(self) -> KeyCut:
        """All entries at this moment. Nothing is copied yet."""
        return self.changes.cut(
            rows=self.entries, copy=self.copy, make_rows=self.make, assemble=self.form.block
        )

    def of_groups(self, groups: KeyGroups, most: int) -> Iterator[list[tuple[Any, Any]]]:
        """The (entry, value) pairs of these key groups. Each step examines ``most`` entries and may yield an
        empty list."""
        found = self.entries()
        while part := list(itertools.islice(found, most)):
            keys = self.form.space.columns([self.key_of(entry) for entry, _ in part])
            yield list(itertools.compress(part, groups.holds(keys, len(part)).tolist()))

    def exported(self, groups: KeyGroups) -> Iterator[StateRows]:
        """The rows of these key groups, as ``KeyedState.export`` returns them."""
        for part in self.of_groups(groups, PIECE_ROWS):
            yield from self.rows(part)

    def rows(self, part: Iterable[tuple[Any, Any]]) -> Iterator[StateRows]:
        """The rows of the entries that have a value."""
        part = [pair for pair in part if pair[1] is not None]
        if part:
            batch = without_removed(self.make([entry for entry, _ in part], [value for _, value in part]))
            if batch.num_rows:
                yield StateRows(self.name, batch, self.form.described(), len(self.form.space.types))


@dataclass(slots=True)
class Registered:
    """One state: its descriptor and the table that holds it."""

    desc: StateDescriptor
    table: Any
    namespaced: bool

    @property
    def timed(self) -> bool:
        """Whether live values are (value, expiry in ms)."""
        return self.desc.ttl is not None


def state_rows(
    state: Registered,
    space: blocks.KeyLayout,
    entries: Callable[[], Iterator[tuple[Any, Any]]],
    now_ms: Callable[[], int],
) -> EntryRows:
    """The rows of a state. Expired values count as removed."""
    desc = state.desc
    schema: dict[str, Any] = {"kind": desc.kind}
    if isinstance(desc, MapStateDescriptor):
        fields = [("map_key", desc.key_type), ("value", desc.type)]
    else:
        fields = [("value", desc.stored_type)]
    if desc.ttl is not None:
        fields.append(("expires_ms", _BIGINT))
        schema["ttl_ms"] = desc.ttl.ttl_ms
    form = blocks.RowForm(space, state.namespaced, tuple(fields), schema)
    make = _map_rows if isinstance(desc, MapStateDescriptor) else _value_rows
    copy = states.deep_copy(desc) or states.shallow_copy(desc)
    return EntryRows(
        name=desc.state_name,
        form=form,
        changes=state.table.changes,
        entries=entries,
        make=partial(make, state, form, now_ms),
        key_of=_first if state.namespaced else _same,
        remove=state.table.remove,
        copy=partial(_timed_copy, copy) if copy is not None and state.timed else copy,
    )


def timer_rows(name: str, queue: TimerQueue, space: blocks.KeyLayout, *, namespaced: bool) -> EntryRows:
    """The rows of the timers in ``queue``."""
    form = blocks.RowForm(space, namespaced, (("time", _BIGINT),), {"kind": "timer"}, ("time",))

    def make(pairs: Sequence[Any], registered: Sequence[Any]) -> pa.RecordBatch:
        removed = [known is None for known in registered]
        columns = [[time for time, _ in pairs]]
        return form.rows(*_split([entry for _, entry in pairs], namespaced), columns, removed)

    return EntryRows(
        name=name,
        form=form,
        changes=queue.changes,
        entries=queue.pairs,
        make=make,
        key_of=(lambda pair: pair[1][0]) if namespaced else (lambda pair: pair[1]),
        remove=lambda pair: queue.delete(*pair),
    )


def read_timers(
    space: blocks.KeyLayout, batch: pa.RecordBatch, schema: dict[str, Any], where: str
) -> Iterator[tuple[int, Any]]:
    """(time, entry) of restored timers."""
    keys = _read_entries(space, batch, schema, where)
    _, times = blocks.read_field(batch, schema, "time")
    return zip(times, keys, strict=True)


def read_values(
    state: Registered,
    space: blocks.KeyLayout,
    batches: Sequence[pa.RecordBatch],
    schema: dict[str, Any],
    now_ms: int,
    where: str,
) -> Iterator[Iterable[tuple[Any, Any]]]:
    """(entry, live value) of restored rows, batch by batch. The rows of one map may be in several batches, so
    maps come all at once. Raises SpecError if the stored types do not fit the declared ones."""
    desc: Any = state.desc
    if desc.kind == "map":
        yield _read_maps(state, space, batches, schema, now_ms, where).items()
        return
    for batch in batches:
        keys = _read_entries(space, batch, schema, where)
        values = _read_field(desc, batch, schema, "value", desc.stored_type, where)
        yield zip(keys, _with_expiry(desc, batch, schema, values, now_ms), strict=True)


def _read_maps(
    state: Registered,
    space: blocks.KeyLayout,
    batches: Sequence[pa.RecordBatch],
    schema: dict[str, Any],
    now_ms: int,
    where: str,
) -> dict[Any, Any]:
    desc: Any = state.desc
    maps: dict[Any, Any] = {}
    for batch in batches:
        keys = _read_entries(space, batch, schema, where)
        map_keys = _read_field(desc, batch, schema, "map_key", desc.key_type, where)
        values = _read_field(desc, batch, schema, "value", desc.type, where)
        values = _with_expiry(desc, batch, schema, values, now_ms)
        for key, map_key, value in zip(keys, map_keys, values, strict=True):
            if state.timed:
                value, expiry = value
                maps.setdefault(key, ({}, expiry))[0][map_key] = value
            else:
                maps.setdefault(key, {})[map_key] = value
    return maps


def _read_entries(
    space: blocks.KeyLayout, batch: pa.RecordBatch, schema: dict[str, Any], where: str
) -> list[Any]:
    keys = blocks.read_keys(space, batch, schema, where)
    namespaces = blocks.read_namespaces(batch)
    return keys if namespaces is None else list(zip(keys, namespaces, strict=True))


def _read_field(
    desc: StateDescriptor,
    batch: pa.RecordBatch,
    schema: dict[str, Any],
    field: str,
    declared: t.LogicalType,
    where: str,
) -> list[Any]:
    stored, values = blocks.read_field(batch, schema, field)
    convert = converter(stored, declared, where, desc.former_fields)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _with_expiry(
    desc: StateDescriptor, batch: pa.RecordBatch, schema: dict[str, Any], values: list[Any], now_ms: int
) -> list[Any]:
    if desc.ttl is None:
        return values
    if "expires_ms" in schema["types"]:
        # The program's time to live applies. For a value that was written under another one it counts from
        # the same write.
        longer = desc.ttl.ttl_ms - schema["ttl_ms"]
        expires = [at + longer for at in blocks.read_field(batch, schema, "expires_ms")[1]]
    else:  # the state had no time to live: it begins now
        expires = [now_ms + desc.ttl.ttl_ms] * len(values)
    return list(zip(values, expires, strict=True))


def _value_rows(
    state: Registered,
    form: blocks.RowForm,
    now_ms: Callable[[], int],
    keys: Sequence[Any],
    values: Sequence[Any],
) -> pa.RecordBatch:
    """Rows of (entry, live value or None)."""
    removed = [value is None for value in values]
    columns: list[Any] = [values]
    if state.timed:
        columns, removed = _without_expired(values, now_ms())
    return form.rows(*_split(keys, state.namespaced), columns, removed)


def _map_rows(
    state: Registered,
    form: blocks.RowForm,
    now_ms: Callable[[], int],
    keys: Sequence[Any],
    values: Sequence[Any],
) -> pa.RecordBatch:
    """One row for each entry of the map. A map that was removed is one row, marked as removed."""
    expires: list[Any] = [0] * len(keys)
    if state.timed:
        (values, expires), _ = _without_expired(values, now_ms())
    flat: list[tuple[Any, ...]] = []
    for key, entries, expiry in zip(keys, values, expires, strict=True):
        if entries:
            flat += [(key, k, v, expiry, False) for k, v in entries.items()]
        else:
            flat.append((key, None, None, 0, True))
    columns = list(map(list, zip(*flat, strict=True))) if flat else [[], [], [], [], []]
    fields = columns[1:4] if state.timed else columns[1:3]
    return form.rows(*_split(columns[0], state.namespaced), fields, columns[4])


def _without_expired(values: Sequence[Any], now_ms: int) -> tuple[list[list[Any]], list[bool]]:
    """([values, expiries], removed) of (value, expires ms) pairs."""
    removed = [pair is None or pair[1] <= now_ms for pair in values]
    pairs = [(None, 0) if gone else pair for pair, gone in zip(values, removed, strict=True)]
    return [[value for value, _ in pairs], [expires for _, expires in pairs]], removed


def _split(keys: Sequence[Any], namespaced: bool) -> tuple[Sequence[Any], Sequence[Any]]:
    """(keys, namespaces) of entries that may carry one."""
    if not namespaced:
        return keys, ()
    return [key for key, _ in keys], [namespace for _, namespace in keys]


def _timed_copy(copy: Callable[[Any], Any], pair: tuple[Any, int]) -> tuple[Any, int]:
    return copy(pair[0]), pair[1]


def _first(entry: Any) -> Any:
    return entry[0]


def _same(entry: Any) -> Any:
    return entry
