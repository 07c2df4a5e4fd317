"""Arrow data as the columns of a table: matched by name, cast where nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import ConnectorError, RecordError, nearest
from penstock.formats.api import FileReader
from penstock.formats.file_errors import damaged
from penstock.formats.fitting import fits
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.formats.api import FileContext
    from penstock.types.logical import Schema


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


class ColumnarReader(FileReader):
    """Shared by readers of Arrow data. ``kind``: the noun of error messages."""

    kind: str

    def __init__(self, ctx: FileContext) -> None:
        super().__init__(ctx)
        self._schema = ctx.schema

    def _check_columns(self, found: pa.Schema) -> None:
        """ConnectorError that names the column if the file does not have it."""
        try:
            columns_by_name(self._schema, found.empty_table(), self._ctx.path)
        except RecordError as err:
            raise ConnectorError(
                err.message, expected=err.expected, got=err.got, where=err.where, remedy=err.remedy
            ) from None

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except (pa.ArrowException, OSError) as err:
            raise damaged(self._ctx.path, self.kind, err) from err

    def _to_batch(self, rows: pa.RecordBatch) -> Batch:
        return Batch(
            self._schema, columns_by_name(self._schema, rows, self._ctx.path), num_rows=rows.num_rows
        )
