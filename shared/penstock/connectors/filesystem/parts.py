"""Reading one split of a file: an async iterator of blocks of rows, by the table's format.

A block knows how to become a batch (on the data thread, where decoding text belongs) and
where it starts, so that a position is ``{"at": start of block, "skip": rows taken from
there, "row": rows of the split so far}``. Bytes are fetched in the helper thread.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.connectors.filesystem.partitions import Partitioning
from penstock.errors import ConnectorError
from penstock.formats.api import Block, FileContext, FormatContext
from penstock.formats.registry import file_format
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.filesystem.paths import Files
    from penstock.formats.api import FileFormat, FileReader
    from penstock.types.batch import Batch


def file_format_of(options: Mapping[str, str]) -> FileFormat:
    """The table's format as a format of files."""
    files = file_format(options.get("format"), where="connector 'filesystem'").files
    assert files is not None  # ``file_format`` has checked this
    return files


class PartitionReader:
    """A file of a partitioned table: the columns of the file, and the values of its partition."""

    def __init__(self, ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]) -> None:
        partitioning = Partitioning.of(table)
        assert partitioning is not None
        path = payload["path"]
        self._partitioning = partitioning
        self._values = partitioning.values(tuple(payload["partition"]), path.rpartition("/")[0])
        self._schema = ctx.schema.select(ctx.projection)
        # The columns as this query reads them: a ROW column may have only some of its fields.
        data = t.Schema(tuple(f for f in ctx.schema.fields if f.name in partitioning.data.names))
        # At least one column must be read, because otherwise the number of rows is unknown.
        read = tuple(data.index(n) for n in self._schema.names if n in data.names) or (0,)
        self._reader = _file_reader(replace(ctx, schema=data, projection=read), table, files, payload)

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        """The blocks of the file's reader, with the partition's values added to their rows."""
        async for block in self._reader.blocks(at):
            yield Block(block.at, partial(self._decode, block))

    def _decode(self, block: Block) -> Batch:
        return self._partitioning.with_values(self._schema, block.decode(), self._values)


def part_reader(
    ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]
) -> FileReader | PartitionReader:
    """The reader of a split."""
    if "partition" in payload:
        return PartitionReader(ctx, table, files, payload)
    return _file_reader(ctx, table, files, payload)


def _file_reader(ctx: SourceContext, table: TableInfo, files: Files, payload: dict[str, Any]) -> FileReader:
    """The reader for the table's format."""
    path: str = payload["path"]
    return file_format_of(table.options).reader(
        FileContext(
            path=path,
            part=payload,
            open=partial(_open, files, path),
            run=ctx.run,
            format=FormatContext(ctx.schema, ctx.projection, table.options, ctx.bad_record),
            batch_rows=ctx.batch_rows,
        )
    )


def check_unchanged(files: Files, payload: dict[str, Any]) -> None:
    """Raises ConnectorError if a file that was read in part has another size now: the position in it would
    mean nothing.

    A file that is read by byte ranges may have grown, because bytes after the part's end are not read.
    """
    path, size = payload["path"], payload.get("size")
    if size is None:  # the split is of a release that did not keep sizes
        return
    with contextlib.closing(_open(files, path)) as file:
        now = file.seek(0, io.SEEK_END)
    if now == size or (now > size and "end" in payload):
        return
    raise ConnectorError(
        f"'{path}' was changed while it was read",
        expected=f"the file of {size} bytes of which rows were read already",
        got=f"{now} bytes",
        where="connector 'filesystem'",
        remedy="bring the old file back and write changed data under a new name; to read it anew, start without this state",
    )


def _open(files: Files, path: str) -> BinaryIO:
    try:
        return files.open_input(path)
    except OSError as err:
        raise ConnectorError(
            f"cannot read '{path}'",
            expected="a readable file that stays until the job ends",
            got=str(err),
            remedy="restore the file, or start the job anew without its state",
        ) from err
