"""Savepoints as DataFrames, and DataFrames as savepoints.

``read_savepoint`` gives a typed frame for every state of every operator; executors read the
snapshot objects, each its own. ``write_savepoint`` makes a savepoint that a streaming job
starts from (bootstrap): keyed state out of frames, whole, at any parallelism.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as st

from penstock.columnar.hashing import HASH_VERSION, hash_columns, key_group_range, key_groups
from penstock.columnar.sorting import stable_argsort
from penstock.errors import SpecError, nearest
from penstock.messages.slot import StateHandle
from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot
from penstock.snapshots.manifest import (
    RELATIVE,
    CheckpointManifest,
    VertexState,
    encode_manifest,
    read_manifest,
)
from penstock.snapshots.restoring import SnapshotChain, Source
from penstock.snapshots.writing import StateInfo, write_snapshot
from penstock.spark.errors import carried
from penstock.spark.typemap import from_spark_array, spark_type, to_spark_array
from penstock.state.blocks import KeyLayout, RowForm, decode_namespace
from penstock.store.open import open_store
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.state.descriptors import StateDescriptor

_EVERYTHING = (0, 2**31 - 1)
#: Where keys of a path that is no URL would lie; every path here is absolute.
_ROOT = "file:///"
_ITEM = t.VarBinaryType()


@dataclass(frozen=True)
class StateLayout:
    """Columns of a state's frame. ``stored``: the columns of the snapshot's batches, of which
    ``namespace`` is shown as ``window_start`` and ``window_end``."""

    names: tuple[str, ...]
    types: tuple[t.LogicalType, ...]
    stored: tuple[str, ...]
    keyed: bool

    def struct(self) -> st.StructType:
        return st.StructType(
            [st.StructField(n, spark_type(x)) for n, x in zip(self.names, self.types, strict=True)]
        )


@dataclass
class Savepoint:
    """A savepoint's states. ``manifest`` says what job it is of."""

    manifest: CheckpointManifest
    session: SparkSession
    options: dict[str, str] = field(default_factory=dict)
    _infos: dict[tuple[str, str], StateInfo] = field(default_factory=dict)
    _handles: dict[str, list[StateHandle]] = field(default_factory=dict)

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
        return self._infos[uid, state]

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
    manifest, infos, handles = asyncio.run(_opened(path, options))
    return Savepoint(manifest, session, options, infos, handles)


async def _opened(path: str, options: dict[str, str]) -> tuple[Any, Any, Any]:
    store = open_store(_ROOT, options)
    manifest = await read_manifest(store, path)
    infos: dict[tuple[str, str], StateInfo] = {}
    handles: dict[str, list[StateHandle]] = {}
    for vertex in manifest.vertices:
        for handle in vertex.handles:
            chain = await SnapshotChain.open(handle, Source(store))
            for operator in chain.newest.footer.operators:
                for state in operator.states:
                    infos.setdefault((operator.uid, state.name), state)
                if operator.states:
                    handles.setdefault(operator.uid, []).append(handle)
    return manifest, infos, handles


# -- reading ---------------------------------------------------------------------------------------


def layout_of(info: StateInfo) -> StateLayout:
    """The columns that a state is shown with."""
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
    store = open_store(_ROOT, options)
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


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateFrame:
    """Rows of one keyed state, to be written into a savepoint. Made by ``of``, ``timers`` or ``like``.

    Args:
        frame: The rows; its columns stand in the order of ``names``.
        schema: The state's description, as the footer of a snapshot has it.
        names: Names of the stored columns.
        types: Their types.
        keys: How many of them are key columns.
    """

    frame: DataFrame
    schema: dict[str, Any]
    names: tuple[str, ...]
    types: tuple[t.LogicalType, ...]
    keys: int

    @classmethod
    def of(
        cls, frame: DataFrame, descriptor: StateDescriptor, key_types: Sequence[t.LogicalType]
    ) -> StateFrame:
        """State that a process function opens with ``descriptor``.

        Args:
            frame: Key columns first, then the value (of a map: key, value; of a list: the whole list).
            descriptor: The function's descriptor.
            key_types: Types of the key columns.

        Raises:
            SpecError: The descriptor has a time to live, or the frame has another number of columns.
        """
        if descriptor.ttl is not None:
            raise SpecError(
                f"state '{descriptor.name}' with a time to live cannot be made of a frame",
                expected="a descriptor without time to live",
                remedy="enable it in the job: its clock starts with the first write",
            )
        described: Any = descriptor
        fields: tuple[tuple[str, t.LogicalType], ...]
        if descriptor.kind == "map":
            fields = (("map_key", described.key_type), ("value", described.type))
            identity: tuple[str, ...] = ("map_key",)
        else:
            fields, identity = (("value", descriptor.stored_type),), ()
        space = KeyLayout(tuple(key_types), 1)
        form = RowForm(space, False, fields, {"kind": descriptor.kind}, identity)
        return cls._of(frame, form, key_types, fields)

    @classmethod
    def timers(cls, frame: DataFrame, key_types: Sequence[t.LogicalType]) -> StateFrame:
        """Event-time timers. ``frame``: key columns of ``key_types``, then the time as TIMESTAMP."""
        fields = (("time", t.BigIntType()),)
        micros = F.unix_micros(F.col(f"`{frame.columns[-1]}`").cast("timestamp"))
        frame = frame.withColumn(frame.columns[-1], micros)
        form = RowForm(KeyLayout(tuple(key_types), 1), False, fields, {"kind": "timer"}, ("time",))
        return cls._of(frame, form, key_types, fields)

    @classmethod
    def like(cls, frame: DataFrame, schema: Mapping[str, Any]) -> StateFrame:
        """State that was read before, with changed rows.

        Args:
            frame: The rows, with the columns that were read.
            schema: What ``Savepoint.schema_of`` gave.

        Raises:
            SpecError: It is the state of windows.
        """
        layout = layout_of(StateInfo(name="", kind="keyed", schema=dict(schema)))
        if "namespace" in layout.stored:
            raise SpecError(
                "state of windows cannot be written from a frame", expected="state without windows"
            )
        keys = len(schema["key_types"]) if "key_types" in schema else len(schema["key_columns"])
        return cls(frame, dict(schema), layout.names, layout.types, keys)

    @classmethod
    def _of(
        cls, frame: DataFrame, form: RowForm, key_types: Sequence[t.LogicalType], fields: Any
    ) -> StateFrame:
        names = (*(f"key{i}" for i in range(len(key_types))), *(n for n, _ in fields))
        types = (*key_types, *(x for _, x in fields))
        if len(frame.columns) != len(names):
            raise SpecError(
                "the frame does not fit the state",
                expected=f"{len(names)} columns: " + ", ".join(names),
                got=", ".join(frame.columns),
            )
        return cls(frame, form.described(), names, tuple(types), len(key_types))


def write_savepoint(
    path: str,
    states: Mapping[str, Mapping[str, StateFrame]],
    *,
    job_name: str = "bootstrap",
    max_parallelism: int = 128,
    parallelism: int = 4,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Write a savepoint; the result is its folder.

    Args:
        path: The folder, a path or a URL.
        states: Operator uid → state name → rows.
        job_name: Name of the job in the manifest.
        max_parallelism: Number of key groups; must be that of the job which starts from the savepoint.
        parallelism: Number of objects for each state. The job may have any parallelism up to ``max_parallelism``.
        storage_options: As in the keys ``storage.options.*``.
    """
    options = dict(storage_options or {})
    folder = (f"file://{path}" if path.startswith("/") else path).rstrip("/")
    vertices = []
    for uid, by_name in states.items():
        handles: list[StateHandle] = []
        for name, state in by_name.items():
            handles += _write_state(folder, uid, name, state, max_parallelism, parallelism, options)
        vertices.append(
            VertexState(
                vertex_id=f"bootstrap-{uid}", name=uid, uids=(uid,), parallelism=parallelism,
                max_parallelism=max_parallelism, handles=tuple(handles),
            )
        )  # fmt: skip
    manifest = CheckpointManifest(
        job_id=uuid.uuid4().hex, job_name=job_name, checkpoint_id=1, kind="savepoint",
        timestamp_ms=time.time_ns() // 1_000_000, job_attempt=1, epoch=1, vertices=tuple(vertices),
    )  # fmt: skip
    asyncio.run(open_store(_ROOT, options).put(f"{folder}/manifest", encode_manifest(manifest)))
    return folder


def _write_state(
    folder: str,
    uid: str,
    name: str,
    state: StateFrame,
    max_parallelism: int,
    parallelism: int,
    options: dict[str, str],
) -> list[StateHandle]:
    frame = state.frame.toDF(*[f"c{i}" for i in range(len(state.names))])
    wanted = [F.col(f"c{i}").cast(spark_type(x)).alias(f"c{i}") for i, x in enumerate(state.types)]
    shape = st.StructType(
        [*(st.StructField(f"c{i}", spark_type(x)) for i, x in enumerate(state.types)),
         st.StructField("g", st.IntegerType()), st.StructField("s", st.IntegerType())]
    )  # fmt: skip
    grouped = frame.select(*wanted).mapInArrow(
        _grouper(state.types, state.keys, max_parallelism, parallelism), shape
    )
    writer = _writer(
        folder, uid, name, state.schema, state.names, state.types, max_parallelism, parallelism, options
    )
    rows = grouped.repartition("s").mapInArrow(writer, "handle string").collect()
    return [msgspec.json.decode(row[0], type=StateHandle) for row in rows]


def _grouper(types: tuple[t.LogicalType, ...], keys: int, max_parallelism: int, parallelism: int) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ends = np.array([key_group_range(i, parallelism, max_parallelism)[1] for i in range(parallelism)])
        for rows in batches:
            columns = [from_spark_array(x, rows.column(i)) for i, x in enumerate(types[:keys])]
            hashes = hash_columns(columns) if columns else np.zeros(rows.num_rows, np.uint64)
            groups = key_groups(hashes, max_parallelism)
            subtasks = np.searchsorted(ends, groups).astype(np.int32)
            arrays = [*rows.columns, pa.array(groups.astype(np.int32)), pa.array(subtasks)]
            yield pa.RecordBatch.from_arrays(arrays, names=[*rows.schema.names, "g", "s"])

    return lambda batches: carried(run(batches), "the state's keys")


def _writer(
    folder: str,
    uid: str,
    name: str,
    schema: dict[str, Any],
    names: tuple[str, ...],
    types: tuple[t.LogicalType, ...],
    max_parallelism: int,
    parallelism: int,
    options: dict[str, str],
) -> Any:
    schema = {"hash_version": HASH_VERSION, **schema}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [b for b in batches if b.num_rows]
        if not found:
            return
        rows = pa.Table.from_batches(found).combine_chunks()
        subtasks = rows.column("s").to_numpy()
        for subtask in np.unique(subtasks).tolist():
            part = rows.take(pa.array(np.flatnonzero(subtasks == subtask)))
            groups = part.column("g").to_numpy().astype(np.int32)
            order = stable_argsort(groups)
            part, groups = part.take(pa.array(order)), groups[order]
            columns = [from_spark_array(x, part.column(i)) for i, x in enumerate(types)]
            batch = pa.RecordBatch.from_arrays([c.to_arrow() for c in columns], names=list(names))
            snapshot = OperatorSnapshot(keyed={name: KeyedBlock(batch, groups, schema)})
            owned = key_group_range(subtask, parallelism, max_parallelism)
            data = write_snapshot({uid: snapshot}, checkpoint_id=1, key_groups=owned)
            object_name = f"{uid}-{name.replace('/', '-')}-{subtask:05d}-{uuid.uuid4().hex[:8]}"
            asyncio.run(open_store(_ROOT, options).put(f"{folder}/{object_name}", data))
            handle = StateHandle(
                vertex_id=f"bootstrap-{uid}", subtask_index=subtask, checkpoint_id=1,
                key=RELATIVE + object_name, size_bytes=len(data), key_groups=owned,
            )  # fmt: skip
            yield pa.record_batch([pa.array([msgspec.json.encode(handle).decode()])], names=["handle"])

    return lambda batches: carried(run(batches), f"state '{name}' of '{uid}'")
