"""CSV by pyarrow: one record in each message, or a part of a file.

Cells are read as text and cast column by column. Only if a cast fails are the cells of that column tried one
by one, to name the record. An unquoted empty cell is NULL unless the column is a string;
``csv.null-literal`` is NULL everywhere.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from penstock.errors import ConnectorError, RecordError, nearest
from penstock.formats.api import Decoder, Encoder, Format, FormatContext
from penstock.formats.build import build_column, in_range
from penstock.formats.json_encode import timestamps_as_text
from penstock.formats.lines import LineFiles, quoted_records
from penstock.formats.reporting import redact, shorten, unsupported_type
from penstock.options import Option, OptionSet, boolean, character, text
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.types.logical import Schema

#: Arrow's error holds the whole record, which is shown only masked.
_RECORD = re.compile(r"(Expected \d+ columns, got \d+): .*", re.DOTALL)

OPTIONS = OptionSet(
    "format 'csv'",
    [
        Option("csv.field-delimiter", character, ",", "Between cells."),
        Option("csv.quote-character", character, '"', "Around cells that hold delimiters."),
        Option("csv.disable-quote-character", boolean, False, "Quotes mean nothing."),
        Option("csv.header", boolean, False, "Files begin with a line of column names (read and written)."),
        Option("csv.null-literal", text, None, "The text that means NULL."),
        Option("csv.ignore-parse-errors", boolean, False, "Skip records that do not parse; bad cells are NULL."),
    ],
)  # fmt: skip

_NESTED = (
    t.ArrayType,
    t.MapType,
    t.MultisetType,
    t.RowType,
    t.RawType,
    t.NullType,
    *t.BINARIES,
    *t.INTERVALS,
)


def _check_types(schema: Schema) -> None:
    for field in schema.fields:
        if isinstance(field.type, _NESTED):
            raise unsupported_type("csv", field.name, field.type)


class CsvDecoder(Decoder):
    """Decodes CSV. ``ctx.extra["header"]`` are the column names of the file, if its header was read before."""

    def __init__(self, ctx: FormatContext) -> None:
        self._options = OPTIONS.read(ctx.options)
        self._table = ctx.schema
        self._schema = ctx.schema.select(ctx.projection)
        self._bad_record = ctx.bad_record
        self._extra = ctx.extra
        self._header: list[str] | None = ctx.extra.get("header")
        self._null = self._options["csv.null-literal"]
        self._ignore = self._options["csv.ignore-parse-errors"]

    @property
    def has_header(self) -> bool:
        return self._options["csv.header"]

    @property
    def quote(self) -> bytes | None:
        """The character between which a line end ends no record."""
        if self._options["csv.disable-quote-character"]:
            return None
        return self._options["csv.quote-character"].encode()

    def set_header(self, line: bytes, where: str) -> None:
        """Column order of the file that follows, from its first line."""
        try:
            cells = self._parse_header(line)
        except pa.ArrowException as err:
            raise ConnectorError(
                "the first line is no CSV header",
                expected="column names: " + ", ".join(self._table.names),
                got=str(err),
                where=where,
                remedy="check 'format', 'path' and 'csv.header'",
            ) from err
        names = [column[0].as_py() for column in cells.columns]
        for field in self._schema.fields:
            if field.name not in names:
                raise ConnectorError(
                    f"the CSV header has no column '{field.name}'",
                    expected=f"'{field.name}'",
                    got=", ".join(names),
                    where=where,
                    remedy=nearest(field.name, names) or "declare the columns that are there",
                )
        self._header = names

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        if not messages:
            return Batch.empty(self._schema)
        cells = self._parse_or_none(b"\n".join(m.rstrip(b"\r\n") for m in messages) + b"\n")
        if cells is not None and cells.num_rows == len(messages):
            return self._convert(cells, messages, where)
        parts = [self._decode_single(m, where(i)) for i, m in enumerate(messages)]
        return Batch.concat(parts)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        cells = self._parse_or_none(data)
        first = self._extra.get("lines_before", 0) + 1
        if cells is None:
            # A record has another number of cells: read line by line to find it.
            numbered = [
                (i, record)
                for i, record in quoted_records(data.splitlines(), first, self.quote, self._is_record)
                if record.strip()
            ]
            return self.decode(
                [record for _, record in numbered], lambda i: f"{where}, line {numbered[i][0]}"
            )
        return self._convert(cells, None, lambda i: f"{where}, line {first + i}")

    def _is_record(self, text: bytes) -> bool:
        cells = self._parse_or_none(text + b"\n")
        return cells is not None and cells.num_rows == 1

    # -- cells ----------------------------------------------------------------------

    def _names(self) -> list[str]:
        return self._header or self._table.names

    def _parse_options(self, **more: object) -> pacsv.ParseOptions:
        options = self._options
        quote = False if options["csv.disable-quote-character"] else options["csv.quote-character"]
        return pacsv.ParseOptions(delimiter=options["csv.field-delimiter"], quote_char=quote, **more)

    def _parse_header(self, line: bytes) -> pa.Table:
        """The first line of a file, as one row of text cells."""
        return pacsv.read_csv(
            io.BytesIO(line),
            read_options=pacsv.ReadOptions(autogenerate_column_names=True, use_threads=False),
            parse_options=self._parse_options(),
            convert_options=pacsv.ConvertOptions(default_column_type=pa.string()),
        )

    def _parse(self, data: bytes, count: int | None = None) -> pa.Table:
        """Text cells of records, which have as many as there are columns, or ``count``."""
        names = [str(i) for i in range(count or len(self._header or self._table.fields))]
        return pacsv.read_csv(
            io.BytesIO(data),
            read_options=pacsv.ReadOptions(
                column_names=names, use_threads=False, block_size=max(len(data) + 1, 1024)
            ),
            parse_options=self._parse_options(newlines_in_values=True, ignore_empty_lines=len(names) > 1),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=self._null is not None,
                null_values=[] if self._null is None else [self._null],
                quoted_strings_can_be_null=False,
            ),
        )

    def _parse_or_none(self, data: bytes) -> pa.Table | None:
        try:
            return self._parse(data)
        except (pa.ArrowException, UnicodeDecodeError):
            return None

    def _decode_single(self, message: bytes, where: str) -> Batch:
        try:
            cells = self._parse(message.rstrip(b"\r\n") + b"\n")
            if cells.num_rows != 1:
                raise RecordError(
                    "not one CSV record", expected="one record", got=f"{cells.num_rows} records"
                )
        except (pa.ArrowException, UnicodeDecodeError, RecordError) as err:
            if self._ignore:
                return self._padded(message.rstrip(b"\r\n") + b"\n", where)
            error = RecordError(
                "the record does not parse as CSV",
                expected=f"{len(self._names())} columns: " + ", ".join(self._names()),
                got=_RECORD.sub(r"\1", str(err)),
            )
            self._reject(error, message, where)
            return Batch.empty(self._schema)
        return self._convert(cells, [message], lambda _: where)

    def _padded(self, line: bytes, where: str) -> Batch:
        """The record with NULL for cells that it lacks, as in Flink; no row if it is wrong otherwise."""
        try:
            cells = self._parse(line, self._parse_header(line).num_columns)
        except (pa.ArrowException, UnicodeDecodeError):
            return Batch.empty(self._schema)
        missing = self._names()[cells.num_columns :]
        needed = any(f.name in missing and not f.type.nullable for f in self._schema.fields)
        if not missing or needed or cells.num_rows != 1:
            return Batch.empty(self._schema)
        for name in missing:
            cells = cells.append_column(name, pa.nulls(1, pa.string()))
        return self._convert(cells, [line], lambda _: where)

    # -- columns ---------------------------------------------------------------------

    def _convert(
        self, cells: pa.Table, messages: Sequence[bytes] | None, where: Callable[[int], str]
    ) -> Batch:
        names = self._names()
        columns: list[Column] = []
        keep = np.ones(cells.num_rows, np.bool_)
        for field in self._schema.fields:
            column = cells.column(names.index(field.name)).combine_chunks()
            try:
                columns.append(_cast(field.type, column))
            except (pa.ArrowException, ValueError, OverflowError, TypeError, ArithmeticError):
                columns.append(self._cast_each(field.name, field.type, column, keep, cells, messages, where))
        batch = Batch(self._schema, columns, num_rows=cells.num_rows)
        return batch if keep.all() else batch.filter(keep)

    def _cast_each(
        self, name: str, type_: t.LogicalType, column: pa.Array, keep: np.ndarray, cells: pa.Table,
        messages: Sequence[bytes] | None, where: Callable[[int], str],
    ) -> Column:  # fmt: skip
        """Casts cell by cell; a record with a bad cell is rejected once and left out."""
        loose = type_.with_nullable(True)
        parts = []
        for i in range(len(column)):
            cell = column.slice(i, 1)
            try:
                parts.append(_cast(type_, cell))
                continue
            except (pa.ArrowException, ValueError, OverflowError, TypeError, ArithmeticError):
                parts.append(Column.nulls(loose, 1))
            if self._ignore and type_.nullable:
                continue
            if keep[i]:
                keep[i] = False
                raw = messages[i] if messages else _joined(cells, i)
                error = RecordError(
                    f"column '{name}' does not fit its type",
                    expected=str(type_), got=shorten(cell[0].as_py()), where=f"column '{name}'",
                )  # fmt: skip
                self._reject(error, raw, where(i))
        out = Column.concat(parts) if parts else Column.nulls(loose, 0)
        return out.cast_type(type_)

    def _reject(self, err: RecordError, raw: bytes, where: str) -> None:
        if self._ignore:
            return
        err.where = f"{where}, {err.where}" if err.where else where
        quoted = redact('"' + raw.decode("utf-8", "replace").replace('"', "'") + '"')
        err.remedy = (
            f"mend the record, or set 'on-error' to skip or dead-letter; it reads (redacted): {quoted}"
        )
        self._bad_record(err, bytes(raw), where)


def _joined(cells: pa.Table, row: int) -> bytes:
    return ",".join(str(column[row].as_py()) for column in cells.columns).encode()


def _cast(type_: t.LogicalType, cells: pa.Array) -> Column:
    """Text cells as a column. Raises if a cell does not fit."""
    if isinstance(type_, t.STRINGS):
        column = Column(type_, cells)
    else:
        cells = pc.utf8_trim_whitespace(cells)
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
        match type_:
            case t.BooleanType():
                column = Column.from_arrow(type_, pc.utf8_lower(cells).cast(pa.bool_()))
            case t.TimestampType() | t.TimestampLtzType() | t.DateType() | t.TimeType():
                column = build_column(type_, cells.to_pylist()) if len(cells) == 0 else _times(type_, cells)
            case t.DecimalType(precision=p, scale=s):
                column = Column.from_arrow(
                    type_, pc.round(cells.cast(pa.decimal256(70, 32)), s).cast(pa.decimal128(p, s))
                )
            case _:
                from penstock.types.storage import arrow_type

                array = cells.cast(arrow_type(type_))
                if isinstance(type_, t.FloatType | t.DoubleType):
                    _check_infinite(type_, array, cells)
                column = Column.from_arrow(type_, array)
    if not type_.nullable and column.null_count:
        raise ValueError("NULL in a NOT NULL column")
    return column


def _check_infinite(type_: t.LogicalType, array: pa.Array, cells: pa.Array) -> None:
    """ValueError for a number beyond the type's range, which Arrow makes infinite."""
    named = pc.match_substring(cells, "inf", ignore_case=True)
    if pc.any(pc.and_not(pc.is_inf(array), named)).as_py():
        raise ValueError(f"a number is outside the range of {type_}")


def _times(type_: t.LogicalType, cells: pa.Array) -> Column:
    from penstock.types.storage import external_arrow_type

    if isinstance(type_, t.TimeType):
        # Arrow cannot parse a time of day, but it can parse a timestamp: on day 0 its number is the time's.
        dated = pc.binary_join_element_wise("1970-01-01", cells, " ").cast(pa.timestamp("us"))
        return Column.from_arrow(type_, dated.cast(pa.int64()).cast(pa.time64("us")))
    column = Column.from_arrow(type_, in_range(type_, cells.cast(external_arrow_type(type_))))
    if isinstance(type_, t.TIMESTAMPS) and type_.precision < 6:
        step = 10 ** (6 - type_.precision)
        return Column(type_, column.values - column.values % step, column.valid)
    return column


class CsvEncoder(Encoder):
    """Encodes rows as CSV lines; NULL is ``csv.null-literal``."""

    def __init__(self, schema: Schema, options: Mapping[str, object]) -> None:
        _check_types(schema)
        self._schema = schema
        self._delimiter = str(options["csv.field-delimiter"])
        self._quote = None if options["csv.disable-quote-character"] else str(options["csv.quote-character"])
        self._null = options["csv.null-literal"] or ""
        self._has_header = bool(options["csv.header"])

    def file_header(self) -> bytes:
        if not self._has_header:
            return b""
        return (self._delimiter.join(map(self._quoted, self._schema.names)) + "\n").encode()

    def encode(self, batch: Batch) -> list[bytes]:
        cells = [self._cells(c) for c in batch.columns]
        delimiter = self._delimiter
        return [delimiter.join(row).encode() for row in zip(*cells, strict=True)]

    def encode_batch(self, batch: Batch) -> bytes:
        lines = self.encode(batch)
        return b"\n".join(lines) + b"\n" if lines else b""

    def _cells(self, column: Column) -> list[str]:
        array = column.to_external_arrow()
        if isinstance(column.type, t.TIMESTAMPS):
            texts = timestamps_as_text(array, iso=False).to_pylist()
        elif isinstance(column.type, t.TimeType):
            texts = pc.utf8_rtrim(pc.utf8_rtrim(array.cast(pa.string()), "0"), ".").to_pylist()
        else:
            texts = array.cast(pa.string()).to_pylist()
        null = str(self._null)
        if isinstance(column.type, t.STRINGS):
            return [null if v is None else self._quoted(v) for v in texts]
        return [null if v is None else v for v in texts]

    def _quoted(self, text_: str) -> str:
        quote = self._quote
        if quote is None:
            return text_
        special = self._delimiter in text_ or quote in text_ or "\n" in text_ or "\r" in text_
        if special or not text_ or text_ == self._null:
            return quote + text_.replace(quote, quote * 2) + quote
        return text_


class CsvFormat(Format):
    """The format ``csv``, for messages and files."""

    name = "csv"
    options = OPTIONS
    extension = "csv"

    def __init__(self) -> None:
        self.files = LineFiles(self, cut=False)

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        _check_types(schema)

    def decoder(self, ctx: FormatContext) -> CsvDecoder:
        return CsvDecoder(ctx)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> CsvEncoder:
        return CsvEncoder(schema, OPTIONS.read(options))
