"""Savepoints as DataFrames.

``read_savepoint`` gives a typed frame for every state of every operator. Executors read the snapshot objects
in parallel. ``savepoint_writing`` has the other direction.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as st

from penstock.errors import SpecError, UnsupportedError, nearest
from penstock.messages.slot import StateHandle
from penstock.snapshots.manifest import CheckpointManifest, read_manifest
from penstock.snapshots.restoring import SnapshotChain, Source
from penstock.snapshots.writing import StateInfo
from penstock.spark.errors import carried
from penstock.spark.typemap import spark_type, to_spark_array
from penstock.state.blocks import decode_namespace
from penstock.store.open import open_store
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

_EVERYTHING = (0, 2**31 - 1)
#: The URL of the store for a path that is no URL. Every path here is absolute.
ROOT = "file:///"
_ITEM = t.VarBinaryType()


@dataclass(frozen=True)
class StateLayout:
    """The columns of a state's frame. ``stored``: the columns of the snapshot's batches; the frame shows
    their ``namespace`` as ``window_start`` and ``window_end``."""

    names: tuple[str, ...]
    types: tuple[t.LogicalType, ...]
    stored: tuple[str, ...]
    keyed: bool

    def struct(self) -> st.StructType:
        """The columns as a Spark type."""
        return st.StructType(
            [st.StructField(n, spark_type(x)) for n, x in zip(self.names, self.types, strict=True)]
        )


@dataclass
class Savepoint:
    """The states in a savepoint. ``manifest``: the savepoint's manifest, which names the job."""

    manifest: CheckpointManifest
    session: SparkSession
    options: dict[str, str] = field(default_factory=dict)
    _infos: dict[tuple[str, str], StateInfo] = field(default_factory=dict)
    _handles: dict[str, list[StateHandle]] = field(default_factory=dict)
    #: (uid, state) → the form of the state in a subtask where it differs from the form in the first subtask.
    _others: dict[tuple[str, str], StateInfo] = field(default_factory=dict)

    @property
    def operators(self) -> list[str]:
        """Uids of the operators that have state."""
        return sorted({uid for uid, _ in self._infos})

    def states(self, uid: str) -> list[str]:
        """Names of an operator's states, e.g. ``value/count``, ``timer/event``, ``cells``."""
        self._check(uid, self.operators, "operator")
        return sorted(name for owner, name in self._infos if owner == uid)

    def schema_of(self, uid: str, state: str) -> dict[str, Any]:
        """What the snapshot says of the state; ``write_savepoint`` takes it back."""
        return self._info(uid, state).schema

    def frame(self, uid: str, state: str) -> DataFrame:
        """The state's rows: the key's columns first, typed; for operator state one ``item``."""
        info = self._info(uid, state)
        layout = layout_of(info)
        handles = self._handles[uid]
        rows = [(i, msgspec.json.encode(h).decode()) for i, h in enumerate(handles)]
        source = self.session.createDataFrame(rows, "n int, handle string")
        source = source.repartition(max(1, len(rows)), "n")
        return source.mapInArrow(_reader(uid, state, layout, self.options), layout.struct())

    def frames(self) -> dict[str, dict[str, DataFrame]]:
        """uid → state → frame. Nothing is read before a frame is used."""
        return {uid: {s: self.frame(uid, s) for s in self.states(uid)} for uid in self.operators}

    def _info(self, uid: str, state: str) -> StateInfo:
        self._check(uid, self.operators, "operator")
        self._check(state, self.states(uid), "state")
        info, other = self._infos[uid, state], self._others.get((uid, state))
        if other is not None:
            raise UnsupportedError(
                "the subtasks have the state in two forms: only some have asked for it since it has another type",
                expected="one form, which a frame has",
                got=f"{info.schema['columns']} and {other.schema['columns']}",
                where=f"state '{state}' of operator '{uid}'",
                remedy="ask for the state in the function's open(), and take another savepoint",
            )
        return info

    @staticmethod
    def _check(name: str, known: list[str], what: str) -> None:
        if name not in known:
            raise SpecError(
                f"the savepoint has no {what} '{name}'",
                expected="one of " + (", ".join(known) or "none: it holds no state"),
                got=repr(name),
                remedy=nearest(name, known),
            )


def read_savepoint(
    path: str, session: SparkSession | None = None, *, storage_options: Mapping[str, str] | None = None
) -> Savepoint:
    """The savepoint or checkpoint at ``path``.

    Args:
        path: A folder, its manifest, or the URL of either.
        session: Where its frames live; None: a new local session.
        storage_options: As in the keys ``storage.options.*``.

    Raises:
        SnapshotError: It is not there or is damaged.
    """
    if session is None:
        from penstock.spark.session import apply_meaning, open_session

        session = open_session("local[2]")
        apply_meaning(session)
    options = dict(storage_options or {})
    return asyncio.run(_opened(path, session, options))


async def _opened(path: str, session: SparkSession, options: dict[str, str]) -> Savepoint:
    store = open_store(ROOT, options)
    out = Savepoint(await read_manifest(store, path), session, options)
    infos, handles = out._infos, out._handles
    for vertex in out.manifest.vertices:
        for handle in vertex.handles:
            chain = await SnapshotChain.open(handle, Source(store))
            for operator in chain.newest.footer.operators:
                for state in operator.states:
                    known = infos.setdefault((operator.uid, state.name), state)
                    if known.schema.get("types") != state.schema.get("types"):
                        out._others[operator.uid, state.name] = state
                if operator.states:
                    handles.setdefault(operator.uid, []).append(handle)
    return out


# -- reading ---------------------------------------------------------------------------------------


def layout_of(info: StateInfo) -> StateLayout:
    """The columns of the frame of a state."""
    if info.kind != "keyed":
        return StateLayout(("item",), (_ITEM,), ("item",), False)
    schema = info.schema
    if "key_types" in schema:
        keys = [(f"key{i}", t.type_from_json(x)) for i, x in enumerate(schema["key_types"])]
        fields = [(name, t.type_from_json(x)) for name, x in schema["types"].items()]
        namespaced = "namespace" in schema.get("identity", ())
        shown = list(keys)
        if namespaced:
            shown += [("window_start", t.TimestampType(6)), ("window_end", t.TimestampType(6))]
        shown += fields
        stored = [n for n, _ in keys] + ["namespace"] * namespaced + [n for n, _ in fields]
        return StateLayout(tuple(n for n, _ in shown), tuple(x for _, x in shown), tuple(stored), True)
    from penstock.sql.parsing import parse_type

    columns = schema.get("columns", {})
    return StateLayout(tuple(columns), tuple(parse_type(x) for x in columns.values()), tuple(columns), True)


def _reader(uid: str, state: str, layout: StateLayout, options: dict[str, str]) -> Any:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return carried(_read(batches, uid, state, layout, options), f"state '{state}' of '{uid}'")

    return read


def _read(
    batches: Iterator[pa.RecordBatch], uid: str, state: str, layout: StateLayout, options: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    store = open_store(ROOT, options)
    for rows in batches:
        for text in rows.column(1).to_pylist():
            handle = msgspec.json.decode(text, type=StateHandle)
            yield from asyncio.run(_rows_of(handle, store, uid, state, layout))


async def _rows_of(
    handle: StateHandle, store: Any, uid: str, state: str, layout: StateLayout
) -> list[pa.RecordBatch]:
    chain = await SnapshotChain.open(handle, Source(store))
    known = next((s for s in chain.newest.footer.states(uid) if s.name == state), None)
    if known is None:
        return []
    if not layout.keyed:
        items = await chain.newest.items(uid, known)
        return [pa.record_batch([pa.array(items, pa.binary())], names=["item"])] if items else []
    found = await chain.keyed(uid, state, _EVERYTHING)
    return [_shown(batch, layout) for batch in found if batch.num_rows]


def _shown(batch: pa.RecordBatch, layout: StateLayout) -> pa.RecordBatch:
    arrays: list[pa.Array] = []
    types = iter(layout.types)
    for name in layout.stored:
        array = batch.column(name) if name in batch.schema.names else None
        if name == "namespace":
            assert array is not None
            windows = [decode_namespace(x) for x in array.to_pylist()]
            for side in (0, 1):
                next(types)
                arrays.append(pa.array([w[side] for w in windows], pa.int64()).cast(pa.timestamp("us")))
            continue
        type_ = next(types)
        column = (
            Column.nulls(type_, batch.num_rows)
            if array is None
            else Column(type_, array)
            if isinstance(type_, t.RawType)
            else Column.from_arrow(type_, array)
        )
        arrays.append(column.values if isinstance(type_, t.RawType) else to_spark_array(column))
    return pa.RecordBatch.from_arrays(arrays, names=list(layout.names))
