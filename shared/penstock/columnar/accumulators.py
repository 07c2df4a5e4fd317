"""Accumulators whose whole state is a few fixed-width cells per slot.

They compute COUNT, SUM, AVG, MIN, MAX, STDDEV and VAR over fixed-width types. ``cells[i]`` is an array
indexed by slot; ``combine[i]`` is the ufunc that merges two partial cells.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar import decimals
from penstock.columnar.sorting import order_codes
from penstock.columnar.store import grown
from penstock.functions.accumulators import square_cells, sum_cells
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.columnar.announcing import Changes
    from penstock.functions.expr import AggregateCall

    Load = Callable[[np.ndarray, Sequence[Column]], np.ndarray]

_LONG = t.BigIntType(False)
_MAX_CODE = 2**63 - 1
_MIN_CODE = -(2**63)


@dataclass(slots=True)
class EntryTable:
    """The state of an accumulator that keeps many rows (*entries*) per slot. Snapshots store it by entry.

    ``read`` gives the columns (``types``) of entries, ``slots_of`` their slots, ``entries_of`` all entries of
    slots, slot by slot. ``load`` stores columns under slots and returns their entries. ``changes`` receives
    the entries that are written and freed; it is None if no snapshot is taken.
    """

    types: Sequence[t.LogicalType]
    read: Callable[[np.ndarray], list[Column]]
    slots_of: Callable[[np.ndarray], np.ndarray]
    entries_of: Callable[[np.ndarray], np.ndarray]
    load: Load
    changes: Changes | None = None
    #: True if ``load`` sorts the rows it receives; each call must then hold all entries of a slot.
    ordered: bool = False

    def write(self, entries: np.ndarray) -> None:
        """Report that these entries (int64) are about to be written."""
        if self.changes is not None:
            self.changes.write(entries)

    def free(self, entries: np.ndarray) -> None:
        """Report that these entries (int64) are about to be freed."""
        if self.changes is not None:
            self.changes.free(entries)


class Accumulator(ABC):
    """Partial results of one aggregate call, by slot. All slot arrays are int64.

    The caller calls ``reset`` for a slot before it first uses the slot. The caller passes to ``add`` only
    the rows that pass FILTER and whose first argument is not NULL (all of them if ``keeps_nulls``).
    """

    #: Types of the partial columns; empty if all state is in ``table()``.
    types: tuple[t.LogicalType, ...] = ()
    #: True if rows with a NULL argument count too (COLLECT, ARRAY_AGG, a user's function).
    keeps_nulls = False
    #: True if the result may depend on the order of the rows.
    depends_on_order = False

    @abstractmethod
    def reset(self, slots: np.ndarray, high: int) -> None:
        """Make the slots empty. ``high`` is one above the highest slot in use; arrays grow to it."""

    @abstractmethod
    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        """Add row i to slot ``slots[i]``; if ``signs[i]`` is -1, retract the row instead (None: all are 1)."""

    @abstractmethod
    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        """Merge ``other_slots[i]`` of ``other`` (of the same call) into ``slots[i]``; slots may repeat."""

    @abstractmethod
    def partials(self, slots: np.ndarray) -> list[Column]:
        """Copies of the partial state: one column for each of ``types``, one row for each slot."""

    @abstractmethod
    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        """Merge partial columns into slots (slots may repeat)."""

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        """Set the state of the new, consecutive slots ``at`` from partial columns (restore)."""
        slots = np.arange(at.start, at.stop)
        self.reset(slots, at.stop)
        self.merge(slots, partials)

    @abstractmethod
    def result(self, slots: np.ndarray) -> Column:
        """The aggregate's value of each slot, as one column."""

    def release(self, slots: np.ndarray) -> None:  # noqa: B027 - most hold nothing else
        """Drop the objects and entries of slots that the caller is about to free."""

    def table(self) -> EntryTable | None:
        """The state with many entries per slot; None if the accumulator has no such state."""
        return None

    @property
    def nbytes(self) -> int:
        """Allocated bytes, unused room included."""
        return 0

    def live_bytes(self, slots: int) -> int:
        """Bytes in use if ``slots`` slots are in use: ``nbytes`` without unused room."""
        return 0


class CellAccumulator(Accumulator):
    """A fixed number of NumPy cells per slot. For each cell a subclass declares its dtype, its initial value
    and the ufunc that merges two cells."""

    dtypes: tuple[type, ...]
    initial: tuple[float, ...]
    combine: tuple[np.ufunc, ...]

    def __init__(self) -> None:
        self.cells: list[np.ndarray] = [
            np.full(1024, v, d) for d, v in zip(self.dtypes, self.initial, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self.cells)

    def live_bytes(self, slots: int) -> int:
        return slots * sum(c.itemsize for c in self.cells)

    def reset(self, slots: np.ndarray, high: int) -> None:
        for i, value in enumerate(self.initial):
            self.cells[i] = grown(self.cells[i], high, value)
            self.cells[i][slots] = value

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        assert isinstance(other, CellAccumulator)
        for mine, theirs, ufunc in zip(self.cells, other.cells, self.combine, strict=True):
            ufunc.at(mine, slots, theirs[other_slots])

    def partials(self, slots: np.ndarray) -> list[Column]:
        return [Column(x, c.take(slots)) for x, c in zip(self.types, self.cells, strict=True)]

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        for mine, column, ufunc in zip(self.cells, partials, self.combine, strict=True):
            ufunc.at(mine, slots, column.values)

    def load(self, at: slice, partials: Sequence[Column]) -> None:
        for i, (column, value) in enumerate(zip(partials, self.initial, strict=True)):
            self.cells[i] = grown(self.cells[i], at.stop, value)
            self.cells[i][at] = column.values


class Count(CellAccumulator):
    """COUNT of the rows that ``add`` receives."""

    types = (_LONG,)
    dtypes, initial, combine = (np.int64,), (0,), (np.add,)

    def __init__(self, type_: t.LogicalType) -> None:
        super().__init__()
        self.type = type_

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        np.add.at(self.cells[0], slots, 1 if signs is None else signs.astype(np.int64))

    def result(self, slots: np.ndarray) -> Column:
        return Column(self.type, self.cells[0][slots])


class Sum(CellAccumulator):
    """SUM, $SUM0 and AVG. The cells are the sum (int64, float64 or decimal limbs) and the number of values."""

    def __init__(self, function: str, arg: t.LogicalType, type_: t.LogicalType) -> None:
        self.function, self.arg, self.type = function, arg, type_
        parts = sum_cells(arg)
        self.types = (*parts, _LONG)
        self.dtypes = tuple(np.float64 if isinstance(x, t.DoubleType) else np.int64 for x in self.types)
        self.initial = (0,) * len(self.types)
        self.combine = (np.add,) * len(self.types)
        super().__init__()

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        values = args[0].values
        if isinstance(self.arg, t.DecimalType):
            parts = decimals.limbs(args[0])
        else:
            parts = [values.astype(self.dtypes[0], copy=False)]
        for cell, part in zip(self.cells, parts, strict=False):
            np.add.at(cell, slots, part if signs is None else part * signs)
        np.add.at(self.cells[-1], slots, 1 if signs is None else signs.astype(np.int64))

    def result(self, slots: np.ndarray) -> Column:
        count = self.cells[-1][slots]
        valid = None if self.function in ("SUM0", "$SUM0") or (count > 0).all() else count > 0
        if isinstance(self.arg, t.DecimalType):
            return self._decimal_result(slots, count, valid)
        total = self.cells[0][slots]
        if self.function == "AVG":
            divisor = np.maximum(count, 1)
            if total.dtype.kind == "f":
                total = total / divisor
            else:  # Java's division truncates towards zero
                quotient = total // divisor
                total = quotient + ((total < 0) & (total % divisor != 0))
        dtype = numpy_dtype(self.type)
        if dtype is None or isinstance(self.type, t.DecimalType):
            return _as_decimal(self.type, total, valid)
        return Column(self.type, total.astype(dtype), valid)

    def _decimal_result(self, slots: np.ndarray, count: np.ndarray, valid: np.ndarray | None) -> Column:
        parts = [cell[slots] for cell in self.cells[:-1]]
        decimals.carry(parts)
        for cell, part in zip(self.cells, parts, strict=False):
            cell[slots] = part
        total = decimals.to_ints(parts)
        assert isinstance(self.arg, t.DecimalType)
        if not isinstance(self.type, t.DecimalType):
            scaled = total.astype(np.float64) / 10.0**self.arg.scale
            if self.function == "AVG":
                scaled = scaled / np.maximum(count, 1)
            dtype = numpy_dtype(self.type)
            return Column(self.type, scaled.astype(dtype), valid)
        shift = self.type.scale - self.arg.scale
        if self.function == "AVG":
            total = decimals.divide_half_up(total, np.maximum(count, 1), shift)
        elif shift:
            total = total.astype(object) * 10**shift
        return decimals.decimal_column(self.type, total, valid)


class Extreme(CellAccumulator):
    """MIN or MAX of a fixed-width type, kept as an int64 order code. It cannot retract: it ignores signs."""

    types = (_LONG, t.BooleanType(False))
    dtypes = (np.int64, np.bool_)

    def __init__(self, function: str, type_: t.LogicalType) -> None:
        self.type = type_
        self.best = np.minimum if function == "MIN" else np.maximum
        self.initial = (_MAX_CODE if function == "MIN" else _MIN_CODE, False)
        self.combine = (self.best, np.logical_or)
        super().__init__()

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        self.best.at(self.cells[0], slots, order_codes(args[0]))
        self.cells[1][slots] = True

    def absorb(self, slots: np.ndarray, other: Accumulator, other_slots: np.ndarray) -> None:
        assert isinstance(other, Extreme)
        self.best.at(self.cells[0], slots, other.cells[0][other_slots])
        self.cells[1][slots[other.cells[1][other_slots]]] = True

    def merge(self, slots: np.ndarray, partials: Sequence[Column]) -> None:
        self.best.at(self.cells[0], slots, partials[0].values)
        self.cells[1][slots[partials[1].values]] = True

    def result(self, slots: np.ndarray) -> Column:
        known = self.cells[1][slots]
        codes = self.cells[0][slots]
        if not known.all():
            codes[~known] = 0
            return Column(self.type, decode_order(self.type, codes), known)
        return Column(self.type, decode_order(self.type, codes))


class Variance(CellAccumulator):
    """STDDEV and VAR as Flink computes them: from Σx, Σx² and the count, in the argument's arithmetic.
    A division of whole numbers truncates towards zero."""

    def __init__(self, function: str, arg: t.LogicalType, type_: t.LogicalType) -> None:
        self.function, self.type = function, type_
        self.types = (*sum_cells(arg), *sum_cells(arg), _LONG)
        kind = np.float64 if isinstance(arg, (t.FloatType, t.DoubleType)) else np.int64
        self.dtypes = (kind, kind, np.int64)
        self.initial = (0, 0, 0)
        self.combine = (np.add,) * 3
        super().__init__()

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        values: np.ndarray = args[0].values.astype(self.dtypes[0])
        square = values * values
        np.add.at(self.cells[0], slots, values if signs is None else values * signs)
        np.add.at(self.cells[1], slots, square if signs is None else square * signs)
        np.add.at(self.cells[2], slots, 1 if signs is None else signs.astype(np.int64))

    def result(self, slots: np.ndarray) -> Column:
        total, squares, count = (cell[slots] for cell in self.cells)
        sample = self.function in ("STDDEV_SAMP", "STDDEV", "VAR_SAMP", "VARIANCE")
        divisor = np.maximum(count - 1 if sample else count, 1)
        spread = squares - _divide(total * total, np.maximum(count, 1))
        out = _divide(spread, divisor)
        if self.function.startswith("STDDEV"):
            out = np.sqrt(np.maximum(out, 0))
        known = count > (1 if sample else 0)
        dtype = numpy_dtype(self.type)
        return Column(self.type, out.astype(dtype), None if known.all() else known)


class DecimalVariance(CellAccumulator):
    """STDDEV and VAR of a DECIMAL. The sums are exact (see ``decimals.limbs``); only the result is rounded."""

    def __init__(self, function: str, arg: t.DecimalType, type_: t.DecimalType) -> None:
        self.function, self.arg, self.type = function, arg, type_
        sums, squares = sum_cells(arg), square_cells(arg)
        self._sums, self._squares = slice(len(sums)), slice(len(sums), len(sums) + len(squares))
        self.types = (*sums, *squares, _LONG)
        self.dtypes = (np.int64,) * len(self.types)
        self.initial = (0,) * len(self.types)
        self.combine = (np.add,) * len(self.types)
        super().__init__()

    def add(self, slots: np.ndarray, args: Sequence[Column], signs: np.ndarray | None) -> None:
        parts = decimals.limbs(args[0])
        values = decimals.to_ints(parts).astype(object)
        squares = decimals.split(values * values, len(self.cells[self._squares]))
        for cell, part in zip(self.cells, (*parts, *squares), strict=False):
            np.add.at(cell, slots, part if signs is None else part * signs)
        np.add.at(self.cells[-1], slots, 1 if signs is None else signs.astype(np.int64))

    def result(self, slots: np.ndarray) -> Column:
        totals, squares = self._ints(slots, self._sums), self._ints(slots, self._squares)
        counts = self.cells[-1][slots]
        least = 2 if self.function in ("STDDEV_SAMP", "STDDEV", "VAR_SAMP", "VARIANCE") else 1
        known = counts >= least
        unscaled = np.zeros(len(slots), object)
        for i in np.flatnonzero(known).tolist():
            n = int(counts[i])
            spread = n * squares[i] - totals[i] * totals[i]
            variance = Fraction(spread, n * (n - least + 1) * 100**self.arg.scale)
            unscaled[i] = self._rounded(variance)
        return decimals.decimal_column(self.type, unscaled, None if known.all() else known)

    def _ints(self, slots: np.ndarray, which: slice) -> list[int]:
        parts = [cell[slots] for cell in self.cells[which]]
        decimals.carry(parts)
        for cell, part in zip(self.cells[which], parts, strict=True):
            cell[slots] = part
        return decimals.to_ints(parts).tolist()

    def _rounded(self, variance: Fraction) -> int:
        """The unscaled result, rounded half up: the variance, or its square root for STDDEV."""
        if not self.function.startswith("STDDEV"):
            return math.floor(variance * 10**self.type.scale + Fraction(1, 2))
        # √v · 10^s + ½ = (√(4 · v · 100^s) + 1) / 2
        return (math.isqrt(math.floor(4 * variance * 100**self.type.scale)) + 1) // 2


def decode_order(type_: t.LogicalType, codes: np.ndarray) -> np.ndarray:
    """The values of int64 order codes of a fixed-width type: the inverse of ``sorting.order_codes``."""
    dtype = numpy_dtype(type_)
    assert dtype is not None
    if dtype.kind == "f":
        bits = codes ^ ((codes >> 63) & np.int64(2**63 - 1))
        return bits.view(np.float64).astype(dtype)
    return codes.astype(dtype)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b
    return a // b + ((a < 0) & (a % b != 0))


def _as_decimal(type_: t.LogicalType, values: np.ndarray, valid: np.ndarray | None) -> Column:
    assert isinstance(type_, t.DecimalType)
    return decimals.decimal_column(type_, values.astype(object) * 10**type_.scale, valid)


def cell_accumulator(call: AggregateCall, arg_types: Sequence[t.LogicalType]) -> CellAccumulator:
    """The accumulator of a COUNT, SUM, AVG, STDDEV or VAR call, or of a MIN or MAX whose input retracts nothing."""
    function = call.function.upper()
    if function == "COUNT":
        return Count(call.type)
    if function in ("MIN", "MAX"):
        return Extreme(function, call.type)
    if function.startswith(("STDDEV", "VAR")):
        if isinstance(arg_types[0], t.DecimalType):
            assert isinstance(call.type, t.DecimalType)
            return DecimalVariance(function, arg_types[0], call.type)
        return Variance(function, arg_types[0], call.type)
    return Sum(function, arg_types[0], call.type)
