"""Rows that a checkpoint keeps until they are written, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.types.logical import Schema


def packed(batches: Sequence[Batch]) -> bytes:
    """Batches of one schema (one or more) as bytes."""
    sink = pa.BufferOutputStream()
    whole = Batch.concat(batches).to_arrow()
    with pa.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_batch(whole)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes, schema: Schema) -> Iterator[Batch]:
    """The batches again."""
    with pa.ipc.open_stream(data) as stream:
        for part in stream:
            yield Batch.from_arrow(schema, part)
