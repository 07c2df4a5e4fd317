"""Arrow IPC streams: many rows a message or file. Columns are matched by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.connectors.base import Decoder, Encoder, FormatContext
from penstock.connectors.options import Option, OptionSet, choice
from penstock.errors import RecordError, nearest
from penstock.formats.base import Format
from penstock.formats.fitting import fits
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column, external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.types.logical import Schema

OPTIONS = OptionSet(
    "format 'arrow'",
    [
        Option(
            "arrow.compression", choice("none", "lz4", "zstd"), "none", "Of the buffers in messages written."
        )
    ],
)


def _fit(type_: t.LogicalType, array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Rows with the fields of ``type_``, by name: data may have more, in any order."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(type_, t.DecimalType) and not pa.types.is_decimal(array.type):
        return array.cast(external_arrow_type(type_))  # whole numbers, not unscaled ones
    if not isinstance(type_, t.RowType) or not pa.types.is_struct(array.type):
        return array
    if [f.name for f in array.type] == [f.name for f in type_.fields]:
        return array
    children, fields = [], []
    for field in type_.fields:
        index = array.type.get_field_index(field.name)
        if index < 0:
            known = ", ".join(f.name for f in array.type)
            raise ValueError(f"there is no field '{field.name}' among {known}")
        want = external_arrow_type(field.type)
        child = _fit(field.type, array.field(index))
        children.append(child if child.type == want else child.cast(want))
        fields.append(pa.field(field.name, want))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def columns_by_name(schema: Schema, data: pa.RecordBatch | pa.Table, where: str) -> list[Column]:
    """The columns of ``schema`` out of Arrow data with those names, cast where needed."""
    names = data.schema.names
    columns = []
    for field in schema.fields:
        index = data.schema.get_field_index(field.name)
        if index < 0:
            raise RecordError(
                f"there is no column '{field.name}'",
                expected=f"'{field.name}' {field.type}",
                got="columns " + ", ".join(names),
                where=where,
                remedy=nearest(field.name, names) or "declare the columns that are there",
            )
        have = data.schema.field(index).type
        if not fits(field.type, have):
            raise _another_type(field, have, "", where)
        try:
            columns.append(Column.from_arrow(field.type, _fit(field.type, data.column(index))))
        except (pa.ArrowException, ValueError) as err:
            raise _another_type(field, have, f": {err}", where) from err
    return columns


def _another_type(field: t.Field, have: pa.DataType, why: str, where: str) -> RecordError:
    remedy = "declare the column with the type that is there"
    if isinstance(field.type, t.TIMESTAMPS) and pa.types.is_integer(have):
        remedy += f", and make the time of it: TO_TIMESTAMP_LTZ({field.name}, 3) takes milliseconds"
    return RecordError(
        f"column '{field.name}' is of another type",
        expected=f"{field.type} (Arrow {external_arrow_type(field.type)})",
        got=f"Arrow {have}{why}",
        where=where,
        remedy=remedy,
    )


class ArrowDecoder(Decoder):
    def __init__(self, ctx: FormatContext) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        batches = [self.decode_batch(m, where(i)) for i, m in enumerate(messages)]
        return Batch.concat(batches) if batches else Batch.empty(self._schema)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        try:
            try:
                table = pa.ipc.open_stream(data).read_all()
            except (pa.ArrowException, OSError) as err:
                raise RecordError(
                    "not an Arrow IPC stream", expected="an Arrow IPC stream", got=str(err), where=where,
                    remedy="write it with pyarrow.ipc.new_stream",
                ) from err  # fmt: skip
            columns = columns_by_name(self._schema, table, where)
        except RecordError as err:
            self._bad_record(err, None, where)
            return Batch.empty(self._schema)
        return Batch(self._schema, columns, num_rows=table.num_rows)


class ArrowEncoder(Encoder):
    def __init__(self, options: Mapping[str, str]) -> None:
        codec = OPTIONS.read(options)["arrow.compression"]
        self._options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)

    def encode(self, batch: Batch) -> list[bytes]:
        return [self.encode_batch(batch.slice(i, 1)) for i in range(len(batch))]

    def encode_batch(self, batch: Batch) -> bytes:
        rows = batch.to_external_arrow()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=self._options) as writer:
            writer.write_batch(rows)
        return sink.getvalue().to_pybytes()


class ArrowFormat(Format):
    name = "arrow"
    options = OPTIONS
    extension = "arrow"

    def decoder(self, ctx: FormatContext) -> ArrowDecoder:
        return ArrowDecoder(ctx)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> ArrowEncoder:
        return ArrowEncoder(options)
