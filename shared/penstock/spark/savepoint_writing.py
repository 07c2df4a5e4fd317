"""Writes DataFrames as a savepoint: whole keyed state, at any parallelism, from which a job can start."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as st

from penstock.columnar.hashing import HASH_VERSION, hash_columns, key_group_range, key_groups
from penstock.columnar.sorting import stable_argsort
from penstock.errors import SpecError
from penstock.messages.slot import StateHandle
from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot
from penstock.snapshots.manifest import RELATIVE, CheckpointManifest, VertexState, encode_manifest
from penstock.snapshots.writing import StateInfo, write_snapshot
from penstock.spark.errors import carried
from penstock.spark.savepoint import ROOT, layout_of
from penstock.spark.typemap import from_spark_array, spark_type
from penstock.state.blocks import KeyLayout, RowForm
from penstock.store.open import open_store
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from penstock.state.descriptors import StateDescriptor


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
    asyncio.run(open_store(ROOT, options).put(f"{folder}/manifest", encode_manifest(manifest)))
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
            asyncio.run(open_store(ROOT, options).put(f"{folder}/{object_name}", data))
            handle = StateHandle(
                vertex_id=f"bootstrap-{uid}", subtask_index=subtask, checkpoint_id=1,
                key=RELATIVE + object_name, size_bytes=len(data), key_groups=owned,
            )  # fmt: skip
            yield pa.record_batch([pa.array([msgspec.json.encode(handle).decode()])], names=["handle"])

    return lambda batches: carried(run(batches), f"state '{name}' of '{uid}'")
