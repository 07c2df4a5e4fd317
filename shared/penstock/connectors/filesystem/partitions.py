"""Partitioned tables: folders ``key=value/key2=value2``, as Flink and Hive name them.

The values of partition columns are in the folders' names, not in the files. Characters that a
path cannot hold are escaped (``%3A``); NULL and the empty string are the default partition.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from penstock.columnar.hashing import hash_columns, key_groups, subtask_of_key_group
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.paths import Files, has_wildcard
from penstock.errors import ConnectorError, PenstockError
from penstock.functions.evaluate import compile_predicate
from penstock.functions.expr import Expr
from penstock.types import Batch, Column, Field, Schema
from penstock.types import logical as t
from penstock.types.iso import datetime_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.connectors.base import TableInfo
    from penstock.connectors.filesystem.paths import FileInfo

KEYS = "partition.keys"
FILTER = "partition.filter"
DEFAULT_NAME = "partition.default-name"
PATTERN = "source.path.regex-pattern"
STATIC = "sink.static-partition"

_WHERE = "connector 'filesystem', PARTITIONED BY"
#: The characters that are escaped, in addition to the control characters.
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")
_INTEGERS = {t.TinyIntType: 8, t.SmallIntType: 16, t.IntType: 32, t.BigIntType: 64}
_TEXTS = (t.CharType, t.VarCharType)
_TYPES = (
    *_TEXTS, *_INTEGERS, t.BooleanType, t.FloatType, t.DoubleType, t.DecimalType, t.DateType, t.TimestampType,
)  # fmt: skip
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?))?")

#: A partition's values as texts, as in its folders' names, in the order of the keys; None: NULL.
Texts = tuple[str | None, ...]


def escape(text: str) -> str:
    """A text in the form in which a folder's name may contain it."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED or c < " " else c for c in text)


def unescape(text: str) -> str:
    """The value of an escaped part of a path."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text)


def text_of(type_: t.LogicalType, value: Any) -> str | None:
    """A value (as ``Column.to_pylist`` gives it) as the text of a folder's name, not escaped."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime.datetime():
            text = value.isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case datetime.date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
    return str(value)


def value_of(type_: t.LogicalType, text: str) -> Any:
    """The value of a folder's name (unescaped). ValueError if it is no value of the type."""
    kind = type(type_)
    if isinstance(type_, _TEXTS):
        return text
    if kind in _INTEGERS:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not _fits(int(text), _INTEGERS[kind]):
            raise ValueError(text)
        return int(text)
    if isinstance(type_, t.BooleanType):
        return (
            {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _no(text)
        )
    if isinstance(type_, t.DecimalType):
        return _decimal(type_, text)
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return float(text) if "_" not in text and text == text.strip() else _no(text)
    found = _TIMESTAMP.fullmatch(text)
    if found is None or (isinstance(type_, t.DateType) and found[2]):
        raise ValueError(text)
    if isinstance(type_, t.DateType):
        return datetime.date.fromisoformat(text)
    return datetime_of(text)


def _no(text: str) -> Any:
    raise ValueError(text)


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _decimal(type_: t.DecimalType, text: str) -> Decimal:
    found = re.fullmatch(r"[+-]?([0-9]+)(?:\.([0-9]+))?", text)
    if found is None:
        raise ValueError(text)
    whole, fraction = found[1].lstrip("0"), (found[2] or "").rstrip("0")
    if len(whole) > type_.precision - type_.scale or len(fraction) > type_.scale:
        raise ValueError(text)
    return Decimal(text)


def constant_text(type_: t.LogicalType, value: Any) -> str | None:
    """As ``text_of``, for a storage value, the form in which literals hold values."""
    return text_of(type_, Column.constant(type_, value, 1).to_pylist()[0])


@dataclass(frozen=True)
class Partitioning:
    """The partition columns of a table. ``schema``: all of its columns, ``data``: those in its files."""

    keys: tuple[str, ...]
    default_name: str
    schema: Schema
    data: Schema

    @classmethod
    def of(cls, table: TableInfo) -> Partitioning | None:
        """The partitioning of ``table``; None if the table is not partitioned."""
        written = table.options.get(KEYS)
        if written is None:
            return None
        keys = tuple(msgspec.json.decode(written, type=list[str]))
        data = Schema(tuple(f for f in table.schema.fields if f.name not in keys))
        default = table.options.get(DEFAULT_NAME, "__DEFAULT_PARTITION__")
        return cls(keys, default, table.schema, data)

    def key_type(self, key: str) -> t.LogicalType:
        """The type of a partition column."""
        return self.schema.types[self.schema.index(key)]

    def check(self, path: str) -> None:
        """ConnectorError for columns that cannot be partition columns, or a path that is no folder."""
        if has_wildcard(path):
            raise ConnectorError(
                "a partitioned table's path is a glob",
                expected="the folder in which the partitions lie",
                got=repr(path),
                where=f"{_WHERE}, option 'path'",
                remedy="name the folder; a condition on partition columns in WHERE reads only some of it",
            )
        if not self.data.fields:
            raise ConnectorError(
                "all columns are partition columns",
                expected="a column besides, to be stored in the files",
                got=", ".join(self.keys),
                where=_WHERE,
                remedy="declare another column, or partition by fewer",
            )
        for key in self.keys:
            if not isinstance(self.key_type(key), _TYPES):
                raise ConnectorError(
                    f"column '{key}' cannot be a partition column",
                    expected="CHAR, VARCHAR, BOOLEAN, an integer, FLOAT, DOUBLE, DECIMAL, DATE or TIMESTAMP",
                    got=self.key_type(key).sql(),
                    where=_WHERE,
                    remedy=f"declare '{key}' STRING, and write CAST({key} AS STRING)",
                )

    # -- folders ----------------------------------------------------------------------------

    def folder(self, texts: Texts) -> str:
        """``key=value/…``, relative to the table's folder. ConnectorError if the name would be read as
        another value."""
        return "/".join(self._name(key, text) for key, text in zip(self.keys, texts, strict=True))

    def _name(self, key: str, text: str | None) -> str:
        if text == self.default_name:
            raise ConnectorError(
                f"column '{key}' has the value that stands for NULL in folders' names",
                expected=f"any value but '{text}'",
                got=repr(text),
                where=_WHERE,
                remedy=f"set '{DEFAULT_NAME}' to a name that is no value",
            )
        if not text and not self.key_type(key).nullable:
            raise ConnectorError(
                f"column '{key}' is NOT NULL, and its value would be read as NULL",
                expected="a value that is not empty: NULL and the empty string are one partition",
                got=repr(text),
                where=_WHERE,
                remedy=f"declare '{key}' without NOT NULL, or filter such rows out",
            )
        name = escape(key)
        if name.startswith("."):  # a hidden folder
            name = "%2E" + name[1:]
        return f"{name}={escape(text) if text else self.default_name}"

    def texts(self, root: str, path: str) -> Texts:
        """The partition in which a file lies. ConnectorError if it lies in none."""
        parts = path.removeprefix(root.rstrip("/")).lstrip("/").split("/")[:-1]
        out: list[str | None] = []
        for key, part in zip(self.keys, parts, strict=False):
            name, equals, value = part.partition("=")
            if not equals or unescape(name) != key:
                break
            out.append(None if value == self.default_name else unescape(value))
        if len(out) < len(self.keys):
            raise ConnectorError(
                f"'{path}' lies in no partition",
                expected="/".join([root.rstrip("/"), *(f"{key}=…" for key in self.keys), "…"]),
                got=path,
                where=_WHERE,
                remedy="move it into a partition's folder, or out of 'path'",
            )
        return tuple(out)

    def values(self, texts: Texts, folder: str) -> tuple[Any, ...]:
        """The typed values; ``folder``: for the error."""
        out: list[Any] = []
        for key, text in zip(self.keys, texts, strict=True):
            type_ = self.key_type(key)
            try:
                if text is None and not type_.nullable:
                    raise ValueError
                out.append(None if text is None else value_of(type_, text))
            except ValueError:
                raise ConnectorError(
                    f"the folder '{folder}' has no value of the partition column '{key}'",
                    expected=type_.sql(),
                    got="NULL (the default partition)" if text is None else repr(text),
                    where=_WHERE,
                    remedy=f"rename or remove the folder, or declare '{key}' "
                    + (type_.with_nullable(True).sql() if text is None else "STRING"),
                ) from None
        return tuple(out)

    def writer_of(self, folder: str, parallelism: int, max_parallelism: int) -> int:
        """The subtask that gets the rows of a partition when rows are sent by the hash of the partition columns."""
        path = f"{folder}/file"
        values = self.values(self.texts("", path), folder)
        row = Batch.of(Schema(tuple(Field(key, self.key_type(key)) for key in self.keys)), [values])
        groups = key_groups(hash_columns(row.columns), max_parallelism)
        return int(subtask_of_key_group(groups, parallelism, max_parallelism)[0])

    # -- rows -------------------------------------------------------------------------------

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """Folder → its rows of the batch, in order, without the partition columns."""
        groups = np.zeros(len(batch), np.int64)
        names: list[list[str | None]] = []
        codes: list[np.ndarray] = []
        for key in self.keys:
            column = batch.columns[self.schema.index(key)]
            encoded = column.to_external_arrow().dictionary_encode()
            code = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
            values = [*encoded.dictionary.to_pylist(), None]
            names.append([text_of(column.type, v) for v in values])
            codes.append(code)
            groups = np.unique(groups * len(values) + code, return_inverse=True)[1].reshape(-1)
        data = batch.select([self.schema.index(name) for name in self.data.names])
        order = np.argsort(groups, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
            texts = tuple(own[code[rows[0]]] for own, code in zip(names, codes, strict=True))
            yield self.folder(texts), data if len(rows) == len(batch) else data.take(rows)

    def with_values(self, schema: Schema, rows: Batch, values: Sequence[Any]) -> Batch:
        """``rows`` (columns of the files) with the partition's values, as ``schema`` has them."""
        known = dict(zip(self.keys, values, strict=True))
        columns = [
            Column.of(f.type, [known[f.name]]).take(np.zeros(len(rows), np.int64))
            if f.name in known
            else rows.column(f.name)
            for f in schema.fields
        ]
        return Batch(schema, columns, kinds=rows.kinds, num_rows=len(rows))


@dataclass(frozen=True)
class FoundFile:
    """A file, its partition (empty: the table has none), and whether the partition is read."""

    info: FileInfo
    texts: Texts
    kept: bool = True


def listed(table: TableInfo, files: Files, path: str) -> list[FileInfo]:
    """The files at ``path`` whose whole path 'source.path.regex-pattern' matches. An object's path begins
    behind its bucket, with ``/``."""
    pattern = table.options.get(PATTERN)
    found = files.list(path)
    if pattern is None:
        return found
    matches = re.compile(pattern).fullmatch
    return [info for info in found if matches(urlsplit(info.path).path if "://" in info.path else info.path)]


def check_there(table: TableInfo, files: Files, path: str, found: Sequence[Any], *, where: str) -> None:
    """ConnectorError if nothing was found. A folder without files is an empty table, which was emptied or never filled."""
    pattern = table.options.get(PATTERN)
    if found or (pattern is None and files.is_folder(path)):
        return
    raise ConnectorError(
        f"no file at '{table.options['path']}'",
        expected="an existing file, a folder, or a glob that matches some files",
        got="nothing there" if pattern is None else f"nothing whose whole path matches '{pattern}'",
        where=where,
        remedy="check the path; it must be readable on every task manager",
    )


def found_files(table: TableInfo, files: Files, path: str) -> list[FoundFile]:
    """All files of a table. In a partitioned table, files of partitions that the query's filter rules out
    are not ``kept``."""
    found = listed(table, files, path)
    partitioning = Partitioning.of(table)
    if partitioning is None:
        return [FoundFile(info, ()) for info in found]
    placed = [(info, partitioning.texts(path, info.path)) for info in found]
    folders = {texts: info.path.rpartition("/")[0] for info, texts in placed}
    kept = _kept(table, partitioning, {x: partitioning.values(x, folder) for x, folder in folders.items()})
    return [FoundFile(info, texts, texts in kept) for info, texts in placed]


def partitions_of(table: TableInfo) -> list[tuple[str, bool]]:
    """The folders of all partitions, and whether the query reads them."""
    partitioning = Partitioning.of(table)
    assert partitioning is not None
    files, path = open_files(table.options["path"], table.options)
    found = {f.texts: f.kept for f in found_files(table, files, path)}
    return sorted((partitioning.folder(texts), kept) for texts, kept in found.items())


def _kept(table: TableInfo, partitioning: Partitioning, found: dict[Texts, tuple[Any, ...]]) -> set[Texts]:
    """Partitions for which one of the alternatives (conditions that all must be TRUE) holds."""
    written = table.options.get(FILTER)
    if written is None or not found:
        return set(found)
    schema = Schema(tuple(Field(key, partitioning.key_type(key)) for key in partitioning.keys))
    rows = Batch.of(schema, list(found.values()))
    some = np.zeros(len(rows), np.bool_)
    for conditions in msgspec.json.decode(written, type=list[list[Expr]]):
        every = np.ones(len(rows), np.bool_)
        for condition in conditions:
            try:
                every &= compile_predicate(condition)(rows)
            except PenstockError:
                # A value for which the condition fails: its rows decide, if there are any.
                continue
        some |= every
    return {texts for texts, keep in zip(found, some.tolist(), strict=True) if keep}
