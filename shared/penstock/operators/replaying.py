"""What a source needs to send a dead letter again: which letters can be read again, and their rows."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from penstock.connectors.base import SourceReader
from penstock.errors import ConnectorError, RecordError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.types.batch import Batch
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.formats.api import Decoder
    from penstock.jobgraph.specs import SourceSpec
    from penstock.operators.bad_records import BadRecords
    from penstock.operators.letters import Letter

_CHANGES = "the source reads changes: an old one would come after newer ones of its row"
_METADATA = "the source reads metadata columns, which the letter does not hold"
_NO_FORMAT = "the source's connector has no format in which the letter's bytes could be read"
_NO_BYTES = "the letter has no bytes"
_PART = "the letter's bytes are a part of a message of many records"

#: The key of a letter's message that holds a whole row of the source, as an Arrow stream.
_ROW = "row"


class Replaying:
    """Reports the bad records of a source with what a replay needs, and reads them again."""

    def __init__(self, spec: SourceSpec, bad: BadRecords) -> None:
        self._spec = spec
        self._bad = bad
        self._reader: SourceReader | None = None
        self._decoder: Decoder | None = None
        self._kept = _CHANGES if spec.changelog != "append" else ""

    def open(self, reader: SourceReader, ctx: SourceContext) -> None:
        """The source's reader is open."""
        self._reader = reader
        if self._kept or type(reader).replay is not SourceReader.replay:
            return
        if self._spec.metadata:
            self._kept = _METADATA
            return
        name = self._spec.options.get("format")
        format_ = None if name is None else get_format(name)
        if format_ is None or not format_.messages:
            self._kept = _NO_FORMAT
            return
        context = FormatContext(ctx.schema, ctx.projection, ctx.options, self._again)
        self._decoder = format_.decoder(context)
        if self._decoder.has_header:
            self._decoder, self._kept = None, _NO_FORMAT

    def record(self, error: BaseException, raw: bytes | None, where: str) -> None:
        """A record that cannot be read; only its bytes are known."""
        if self._decoder is not None and raw is not None:
            self._bad.record(error, raw, where, {})
        else:
            self._bad.record(error, raw, where, kept=self._kept or (_NO_BYTES if raw is None else _PART))

    def message(
        self, error: BaseException, raw: bytes | None, where: str, message: Mapping[str, Any]
    ) -> None:
        """A message that cannot be read, with what the reader needs to read it again."""
        self._bad.record(error, raw, where, None if self._kept else message, self._kept)

    def row(self, error: BaseException, row: Batch, where: str) -> None:
        """A row that was read, and whose computed columns fail."""
        message = (
            None
            if self._kept
            else {_ROW: _stream(row), "schema": msgspec.json.encode(row.schema), "columns": self._columns()}
        )
        self._bad.record(error, repr(row.to_pylist()[0]).encode(), where, message, self._kept)

    def _again(self, error: Exception, raw: bytes | None, where: str) -> None:
        self._bad.record(error, raw, where, {})

    def _columns(self) -> list[str]:
        """The columns that the reader gives, in words."""
        given = self._spec.schema.select(self._spec.projection).fields
        return [*(f"{f.name} {f.type}" for f in given), *(f"METADATA '{key}'" for key in self._spec.metadata)]

    async def rows(self, letters: Sequence[Letter]) -> list[Batch]:
        """The rows of letters, as the reader gives them. A letter that fails again is reported again."""
        found: list[Batch] = []
        plain = [x for x in letters if x.message is not None and not x.message]
        stored = [x for x in letters if x.message and _ROW in x.message]
        told = [x.message for x in letters if x.message and _ROW not in x.message]
        if plain:
            found.append(await self._decoded(plain))
        if told:
            assert self._reader is not None
            found.append(await self._reader.replay(told))
        for letter in stored:
            assert letter.message is not None
            if letter.message["columns"] == self._columns():
                found.append(_row(letter.message))
                continue
            other = RecordError(
                "the row of a dead letter has other columns than the source now reads",
                expected=", ".join(self._columns()),
                got=", ".join(letter.message["columns"]),
                where=letter.where,
            )
            self._bad.record(other, letter.raw, letter.where, kept=other.message)
        return found

    async def _decoded(self, letters: Sequence[Letter]) -> Batch:
        decoder = self._decoder
        if decoder is None:
            raise ConnectorError(
                "the source cannot read dead letters again as it is now",
                expected="the source as it was when the letters were set aside",
                got=self._kept or "a reader that needs more than a letter's bytes",
                where=self._spec.connector,
                remedy="replay the letters into a job whose source has the same connector",
            )
        data = [x.raw or b"" for x in letters]
        missing = decoder.prepare(data) if decoder.fetches else None
        if missing is not None:
            await missing
        return decoder.decode(data, lambda i: letters[i].where)


def _stream(row: Batch) -> bytes:
    arrow = row.to_arrow()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_batch(arrow)
    return sink.getvalue()


def _row(message: Mapping[str, Any]) -> Batch:
    """The stored row, without its number of arrival, of which it gets a new one."""
    schema = msgspec.json.decode(base64.b64decode(message["schema"]), type=Schema)
    with pa.ipc.open_stream(base64.b64decode(message[_ROW])) as reader:
        row = Batch.from_arrow(schema, reader.read_next_batch())
    return row.select(range(len(message["columns"])))
