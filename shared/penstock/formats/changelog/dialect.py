"""How a capture tool says what changed: the fields of its records, and the rows that they mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RecordError
from penstock.types import logical as t
from penstock.types.batch import RowKind
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.options import Option
    from penstock.types.batch import Batch

INSERT, BEFORE, AFTER, DELETE = (np.uint8(k) for k in RowKind)

TEXT, LONG = t.VarCharType(), t.BigIntType()
TEXTS = t.ArrayType(t.VarCharType())


@dataclass(slots=True)
class Changes:
    """Rows of a batch of records. ``pool``: the columns that they are taken from; ``take``: positions in it;
    ``kinds``: of the rows; ``message``: the record of each row, ascending. ``rejected``: records that are no change
    of a row, and why; none of their rows counts."""

    pool: list[Column]
    take: np.ndarray
    kinds: np.ndarray
    message: np.ndarray
    rejected: dict[int, RecordError] = field(default_factory=dict)


class Dialect(ABC):
    """The records of one capture tool. ``options``: the format's, typed, without its name; ``where``: for errors."""

    #: Metadata key → its type.
    metadata: ClassVar[Mapping[str, t.LogicalType]] = {}
    more_options: ClassVar[Sequence[Option]] = ()

    def __init__(self, options: Mapping[str, Any], where: str) -> None:
        self.options, self.where = options, where

    @abstractmethod
    def fields(self, row: t.RowType, metadata: Sequence[str]) -> list[t.Field]:
        """The fields of a record that are needed. ``row``: the table's columns; ``metadata``: wanted keys."""

    def opened(self, records: Batch) -> tuple[Batch, np.ndarray]:
        """What the records hold, if that lies in a field of theirs, and whether each is a record to read."""
        return records, np.ones(len(records), np.bool_)

    @abstractmethod
    def changes(self, records: Batch, messages: Sequence[bytes]) -> Changes:
        """The rows that the records mean. ``messages``: their bytes."""

    def metadata_column(self, key: str, records: Batch, messages: Sequence[bytes]) -> Column:
        """The value of ``key`` for each record."""
        raise NotImplementedError(key)

    def check_writing(self) -> None:  # noqa: B027
        """ConnectorError for options with which nothing can be written."""

    @abstractmethod
    def written(self, added: bool, *, skips_nulls: bool) -> tuple[bytes, bytes]:
        """What stands before and behind the row in the record of an added or a deleted row."""


def present(column: Column) -> np.ndarray:
    """Whether each value is not NULL."""
    return np.ones(len(column), np.bool_) if column.valid is None else column.valid


def codes(column: Column, words: Sequence[str]) -> np.ndarray:
    """The place of each text among ``words``; −1: it is none of them."""
    found = pc.index_in(column.values, value_set=pa.array(words, column.values.type))
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False)


def children(row: Column) -> list[Column]:
    """The fields of a ROW column, NULL where the row is."""
    assert isinstance(row.type, t.RowType)
    return [row.child(i) for i in range(len(row.type.fields))]


def millis(column: Column) -> Column:
    """TIMESTAMP_LTZ(3) of milliseconds since the epoch."""
    return Column(t.TimestampLtzType(3), column.values * 1000, column.valid)


def unknown(column: Column, i: int, name: str, words: Sequence[str]) -> RecordError:
    """A record whose field ``name`` says what kind of change it is, and says none that is known."""
    return RecordError(
        f"the record's '{name}' is no change of a row",
        expected=f"'{name}' = " + ", ".join(repr(word) for word in words),
        got=repr(column.slice(i, 1).to_pylist()[0]),
        where=f"field '{name}'",
    )


def missing(name: str, change: str, remedy: str = "") -> RecordError:
    """A record without the row that its kind of change needs."""
    return RecordError(
        f"the record of {change} has no '{name}'",
        expected=f"an object '{name}'",
        got="null or no such field",
        where=f"field '{name}'",
        remedy=remedy or None,
    )


def before_and_after(records: Batch, kind: str, words: Mapping[str, str], remedy: str = "") -> Changes:
    """The rows of records with fields ``before`` and ``after``.

    Args:
        records: The records.
        kind: The field that says what happened.
        words: Its values → ``insert``, ``update`` or ``delete``.
        remedy: What to do when a row before a change is missing.
    """
    n, column = len(records), records.column(kind)
    found = codes(column, list(words))
    did = np.array([*words.values(), ""], object)[found]
    insert, update, delete = (did == word for word in ("insert", "update", "delete"))
    before, after = records.column("before"), records.column("after")
    has_before, has_after = present(before), present(after)
    rejected: dict[int, RecordError] = {}
    for i in np.flatnonzero(found < 0).tolist():
        rejected[i] = unknown(column, i, kind, list(words))
    for i in np.flatnonzero((update | delete) & ~has_before).tolist():
        rejected[i] = missing("before", "an update" if update[i] else "a deletion", remedy)
    for i in np.flatnonzero((update | insert) & ~has_after).tolist():
        rejected.setdefault(i, missing("after", "an update" if update[i] else "an insertion"))
    olds, news = np.flatnonzero(update | delete), np.flatnonzero(update | insert)
    kinds = np.concatenate((np.where(update[olds], BEFORE, DELETE), np.where(update[news], AFTER, INSERT)))
    message = np.concatenate((olds, news))
    # Both rows of an update side by side, the old one first.
    order = np.argsort(2 * message + np.repeat([0, 1], [len(olds), len(news)]), kind="stable")
    pool = [Column.concat(pair) for pair in zip(children(before), children(after), strict=True)]
    return Changes(
        pool, np.concatenate((olds, n + news))[order], kinds[order].astype(np.uint8), message[order], rejected
    )
