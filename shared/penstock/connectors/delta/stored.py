"""What a stored Delta table is: its columns, its partitions, and whether its files can be read by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from penstock.errors import ConnectorError, UnsupportedError

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: The table features that this reader accepts; ``deletionVectors`` and ``columnMapping`` only while they are
#: not used.
_KNOWN = {"timestampNtz", "deletionVectors", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """The table's columns as Arrow's."""
    return pa.schema(table.schema().to_arrow())


def check_readable(table: DeltaTable, where: str) -> None:
    """Raises UnsupportedError for a table with a feature that this reader does not know: its rows could be
    wrong."""
    features = set(table.protocol().reader_features or ())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise unsupported("column mapping", where)
    for feature in sorted(features - _KNOWN):
        raise unsupported(f"the feature '{feature}'", where)
    if "deletionVectors" in features and pa.table(table.deletion_vectors()).num_rows:
        raise unsupported("deletion vectors", where)


def unsupported(what: str, where: str) -> UnsupportedError:
    return UnsupportedError(
        f"a Delta table with {what}",
        expected="data files whose columns have the table's names and whose rows are all valid",
        where=where,
        remedy="rewrite the table without it (REORG TABLE … APPLY (PURGE) removes deletion vectors)",
    )


def partition_texts(values: pa.Array, name: str) -> pa.Array:
    """Partition values as the log writes them."""
    type_ = values.type
    if at.is_string(type_) or at.is_large_string(type_):
        empty = pc.any(pc.equal(values, "")).as_py()
        if empty:
            raise ConnectorError(
                f"an empty text as the value of partition column '{name}'",
                expected="a text or NULL: Delta cannot tell an empty text from NULL there",
                got="''",
                where="connector 'delta'",
                remedy=f"write NULLIF({name}, '')",
            )
        return values
    if at.is_timestamp(type_) and type_.tz is not None:
        return pc.strftime(values, format="%Y-%m-%dT%H:%M:%SZ")
    return values.cast(pa.string())


def partition_texts_of(table: DeltaTable) -> dict[str, dict[str, str | None]]:
    """File → partition column → value as the log writes it."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    schema = arrow_schema(table)
    out: dict[str, dict[str, str | None]] = {}
    for row in rows:
        texts: dict[str, str | None] = {}
        for name in table.metadata().partition_columns:
            value = pa.array([row[f"partition.{name}"]], schema.field(name).type)
            texts[name] = partition_texts(value, name)[0].as_py()
        out[unquote(row["path"])] = texts
    return out
