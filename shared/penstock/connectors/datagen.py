"""``datagen``: generated rows, as in Flink's connector of that name.

Per field ``fields.<name>.kind`` = ``random`` (default) or ``sequence``, with ``min``,
``max``, ``length``, ``start``, ``end``, ``null-rate``, ``max-past``. Random values are a
function of the table's ``seed``, the split and the row's number, so a restart makes the
same rows again. The source is bounded when ``number-of-rows`` is set or some field is a
sequence (with the shortest sequence).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from penstock.connectors.base import SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.paced import PacedReader, Share, SharesEnumerator
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, nearest
from penstock.options import (
    Option,
    OptionSet,
    boolean,
    choice,
    duration_ms,
    integer,
    number,
)  # fmt: skip
from penstock.types import Batch, Column
from penstock.types import logical as t
from penstock.types.arrow_buffers import binary_array, offsets_of_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType, Schema

OPTIONS = OptionSet(
    "connector 'datagen'",
    [
        Option("rows-per-second", integer, 10_000, "Pace of all readers together; 0 = as fast as can be."),
        Option("number-of-rows", integer, None, "Then the source ends; default: never, unless a field is a sequence."),
        Option("seed", integer, 42, "Of the random values."),
    ],
    prefixes=("fields.",),
)  # fmt: skip

#: For the estimate of a table's size.
_BYTES_OF_A_FIELD = 16

_FIELD_OPTIONS = {
    "kind": Option("kind", choice("random", "sequence"), "random"),
    "min": Option("min", number),
    "max": Option("max", number),
    "length": Option("length", integer, 100),
    "var-len": Option("var-len", boolean, False),
    "start": Option("start", integer),
    "end": Option("end", integer),
    "null-rate": Option("null-rate", number, 0.0),
    "max-past": Option("max-past", duration_ms, 0),
}
_INT_RANGE = {t.TinyIntType: 7, t.SmallIntType: 15, t.IntType: 31, t.BigIntType: 63}
#: Rows are made in blocks of this many, each from its own seed.
BLOCK_ROWS = 4_096
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The settings of one generated column."""

    name: str
    type: LogicalType
    settings: dict[str, Any]

    @property
    def is_sequence(self) -> bool:
        """Whether the column is a sequence; else it is random."""
        return self.settings["kind"] == "sequence"


def field_specs(table: TableInfo) -> list[FieldSpec]:
    """The checked ``fields.<name>.<setting>`` options of every column."""
    texts: dict[str, dict[str, str]] = {name: {} for name in table.schema.names}
    for key, value in table.options.items():
        if not key.startswith("fields."):
            continue
        name, _, setting = key.removeprefix("fields.").rpartition(".")
        if name not in texts:
            raise _bad(key, value, "a column: " + ", ".join(texts), nearest(name, texts))
        if setting not in _FIELD_OPTIONS:
            raise _bad(key, value, " | ".join(_FIELD_OPTIONS), nearest(setting, _FIELD_OPTIONS))
        texts[name][setting] = value
    out = []
    for field in table.schema.fields:
        options = OptionSet(f"connector 'datagen', field '{field.name}'", _FIELD_OPTIONS.values())
        spec = FieldSpec(field.name, field.type, options.read(texts[field.name]))
        _check(spec)
        out.append(spec)
    return out


def _bad(key: str, value: str, expected: str, remedy: str | None) -> ConnectorError:
    return ConnectorError(
        f"unknown option '{key}'", expected=f"'fields.<column>.<setting>' with {expected}",
        got=f"'{key}' = '{value}'", where="connector 'datagen'", remedy=remedy or "remove it",
    )  # fmt: skip


def _check(spec: FieldSpec) -> None:
    settings = spec.settings
    where = f"connector 'datagen', field '{spec.name}'"
    if spec.is_sequence:
        if settings["start"] is None or settings["end"] is None:
            raise ConnectorError(
                f"sequence '{spec.name}' lacks its start or end",
                expected=f"'fields.{spec.name}.start' and 'fields.{spec.name}.end'",
                got=f"start = {settings['start']}, end = {settings['end']}", where=where, remedy="set both",
            )  # fmt: skip
        if not isinstance(spec.type, (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType, *t.STRINGS)):
            raise _unsupported(spec, "sequence")
    elif not isinstance(spec.type, _RANDOM):
        raise _unsupported(spec, "random")


def _unsupported(spec: FieldSpec, kind: str) -> ConnectorError:
    return ConnectorError(
        f"datagen makes no {kind} values of type {spec.type}",
        expected="a number, string, boolean, date, time or time stamp",
        got=f"'{spec.name}' {spec.type}",
        where="connector 'datagen'",
        remedy="declare the column as a computed one over simple columns",
    )


_RANDOM = (
    t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType, *t.STRINGS, *t.BINARIES,
    *t.TIMESTAMPS, t.DateType, t.TimeType,
)  # fmt: skip


def total_rows(table: TableInfo) -> int | None:
    """The number of rows of all readers together; None: unbounded."""
    ends = [s.settings["end"] - s.settings["start"] + 1 for s in field_specs(table) if s.is_sequence]
    given = OPTIONS.read_one(table.options, "number-of-rows")
    if given is not None:
        ends.append(given)
    return max(0, min(ends)) if ends else None


class RowMaker:
    """Makes rows of one split. ``stride``: the number of splits. Row i of the split is row i * stride + index
    of the table, which is what sequences count."""

    def __init__(self, specs: Sequence[FieldSpec], seed: int, index: int, stride: int) -> None:
        self._specs = specs
        self._seed = seed
        self._index = index
        self._stride = stride

    def block(self, schema: Schema, block: int, now_ms: int) -> Batch:
        """``BLOCK_ROWS`` rows, a function of the seed and the block's number (and of the clock, for times)."""
        rng = np.random.default_rng([self._seed, self._index, block])
        rows = np.arange(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS, dtype=np.int64)
        columns = [self._column(spec, rng, rows, now_ms) for spec in self._specs]
        return Batch(schema, columns, num_rows=BLOCK_ROWS)

    def _column(self, spec: FieldSpec, rng: np.random.Generator, rows: np.ndarray, now_ms: int) -> Column:
        if spec.is_sequence:
            numbers = rows * self._stride + self._index + spec.settings["start"]
            return _from_numbers(spec.type, numbers)
        column = _random(spec, rng, len(rows), now_ms)
        rate = spec.settings["null-rate"]
        if rate <= 0:
            return column
        valid = rng.random(len(rows)) >= rate
        if column.is_numpy:
            return Column(spec.type, column.values, valid)
        return column.take_or_null(np.where(valid, np.arange(len(rows)), -1))


def _from_numbers(type_: LogicalType, numbers: np.ndarray) -> Column:
    if isinstance(type_, t.STRINGS):
        return Column(type_, pa.array(numbers).cast(pa.string()))
    if isinstance(type_, t.DecimalType):
        return Column.from_arrow(type_, pa.array(numbers).cast(pa.decimal128(38, 0)).cast(pa.decimal128(38, type_.scale)).cast(pa.decimal128(type_.precision, type_.scale)))  # fmt: skip
    from penstock.types.storage import numpy_dtype

    return Column(type_, numbers.astype(numpy_dtype(type_)))


def _random(spec: FieldSpec, rng: np.random.Generator, n: int, now_ms: int) -> Column:
    type_, settings = spec.type, spec.settings
    low, high = settings["min"], settings["max"]
    match type_:
        case t.BooleanType():
            return Column(type_, rng.random(n) < 0.5)
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            bits = _INT_RANGE[type(type_)]
            first = -(1 << bits) if low is None else int(low)
            last = (1 << bits) - 1 if high is None else int(high)
            return _from_numbers(type_, rng.integers(first, last, n, dtype=np.int64, endpoint=True))
        case t.FloatType() | t.DoubleType():
            dtype = np.float32 if isinstance(type_, t.FloatType) else np.float64
            width = float(np.finfo(dtype).max) / 4
            least, most = (-width if low is None else low), (width if high is None else high)
            return Column(type_, (least + rng.random(n) * (most - least)).astype(dtype))
        case t.DecimalType(precision=p, scale=s):
            limit = 10 ** min(p, 18) - 1
            first = -limit if low is None else round(low * 10**s)
            last = limit if high is None else round(high * 10**s)
            unscaled = rng.integers(first, last, n, dtype=np.int64, endpoint=True)
            if p <= 18:
                return Column(type_, unscaled)
            small = Column(t.DecimalType(18, min(s, 18)), unscaled).to_external_arrow()
            return Column.from_arrow(type_, small.cast(pa.decimal128(p, s)))
        case t.TimestampType() | t.TimestampLtzType():
            past = rng.integers(0, settings["max-past"], n, endpoint=True)
            return Column(type_, (now_ms - past) * 1000)
        case t.DateType():
            past = rng.integers(0, settings["max-past"], n, endpoint=True)
            return Column(type_, ((now_ms - past) // 86_400_000).astype(np.int32))
        case t.TimeType():
            return Column(type_, rng.integers(0, 86_400, n, dtype=np.int64) * 1_000_000)
    return _random_text(type_, rng, n, settings)


def _random_text(type_: LogicalType, rng: np.random.Generator, n: int, settings: dict[str, Any]) -> Column:
    length = settings["length"]
    if isinstance(type_, (t.CharType, t.VarCharType)):
        length = min(length, type_.length)
    lengths = rng.integers(1, length, n, endpoint=True) if settings["var-len"] else np.full(n, length)
    offsets = offsets_of_lengths(lengths)
    data = _HEX[rng.integers(0, 16, int(offsets[-1]), dtype=np.uint8)]
    kind = pa.string() if isinstance(type_, t.STRINGS) else pa.binary()
    return Column(type_, binary_array(kind, offsets, data))


class DatagenReader(PacedReader):
    """Generates the rows of its splits at the configured pace."""

    def __init__(self, table: TableInfo) -> None:
        options = OPTIONS.read(table.options)
        super().__init__(options["rows-per-second"])
        self._seed: int = options["seed"]
        self._specs = field_specs(table)

    def make(self, share: Share, most: int) -> Batch:
        specs = [self._specs[i] for i in self.ctx.projection]
        schema = self.ctx.schema.select(self.ctx.projection)
        block, offset = divmod(share.row, BLOCK_ROWS)
        maker = RowMaker(specs, self._seed, share.index, share.of)
        return maker.block(schema, block, self.ctx.now_ms()).slice(offset, min(most, BLOCK_ROWS - offset))


class DatagenConnector(DeclaredConnector):
    """The source ``datagen``, which generates rows."""

    name = "datagen"
    location = ()
    roles = ("source",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        field_specs(table)

    def is_bounded(self, table: TableInfo) -> bool:
        return total_rows(table) is not None

    def estimated_bytes(self, table: TableInfo) -> int | None:
        rows = total_rows(table)
        return None if rows is None else rows * len(table.schema) * _BYTES_OF_A_FIELD

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        return SharesEnumerator(total_rows(table))

    def reader(self, table: TableInfo) -> SourceReader:
        return DatagenReader(table)
