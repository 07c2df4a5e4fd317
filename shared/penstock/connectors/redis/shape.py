"""The form of rows in Redis: which columns make the key, which make the value, and how they become bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.redis.settings import OPTIONS, OWNER
from penstock.connectors.texts import KeyTemplate, check_scalars, read_value, written
from penstock.errors import ConnectorError, PenstockError, nearest
from penstock.formats import message_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo

#: Data types whose values are fields with names; the others hold a row in a format.
FIELDS = ("hash", "stream")


class Shape:
    """The form of a table's rows in Redis. ConnectorError for a wrong table."""

    def __init__(self, table: TableInfo) -> None:
        self.options = OPTIONS.read(table.options)
        self.type: str = self.options["data-type"]
        self.schema = table.schema
        self._raw_options = table.options
        text = self.options["key"]
        self.template = KeyTemplate(
            text.partition(";")[0] if self.type == "stream" else text, table.schema, OWNER
        )
        self.score = self._score()
        in_key = {*self.template.columns} | ({self.score} if self.score is not None else set())
        #: Columns of the value, when it is written in a format.
        self.value = tuple(i for i in range(len(table.schema)) if i not in in_key)
        if self.type in FIELDS and not self.formatted:
            check_scalars(table.schema.fields, OWNER)
        if not self.type_has_fields:
            self.format = message_format(
                table.options.get("format"), where=f"{OWNER}, 'data-type' = '{self.type}'"
            )
            self.format.check(self.schema.select(self.value), table.options)
            if self.format.changelog:
                raise ConnectorError(
                    f"'format' = '{self.format.name}' is a format of changes",
                    expected="a format of rows: json, csv, raw, avro",
                    got=f"'{self.format.name}'",
                    where=OWNER,
                    remedy="choose 'json'",
                )

    @property
    def formatted(self) -> bool:
        """Whether the table names a format."""
        return "format" in self._raw_options

    @property
    def type_has_fields(self) -> bool:
        """Whether columns are fields with names."""
        return self.type in FIELDS

    def _score(self) -> int | None:
        name = self.options["zset.score"]
        if (name is not None) != (self.type == "zset"):
            raise ConnectorError(
                "'zset.score' belongs to 'data-type' = 'zset'",
                expected="both or neither",
                got=f"'data-type' = '{self.type}', 'zset.score' = {name}",
                where=OWNER,
                remedy="name the column that is the score" if name is None else "remove 'zset.score'",
            )
        if name is None:
            return None
        if name not in self.schema.names:
            raise ConnectorError(
                f"option 'zset.score' names no column of the table: '{name}'",
                expected="one of " + ", ".join(self.schema.names),
                got=repr(name),
                where=OWNER,
                remedy=nearest(name, self.schema.names),
            )
        return self.schema.index(name)

    def key_columns(self) -> set[str] | None:
        """The primary key that changes must have; None: the data type takes inserts alone."""
        names = self.schema.names
        match self.type:
            case "hash" | "string":
                return {names[i] for i in self.template.columns}
            case "set":
                return set(names)
            case "zset":
                return {n for i, n in enumerate(names) if i != self.score}
        return None

    # -- rows to bytes ----------------------------------------------------------------------

    def fields(self, batch: Batch) -> list[dict[Any, Any]]:
        """For each row, its columns that are not NULL, by name."""
        names = batch.schema.names
        return [
            {n: v for n, v in zip(names, row, strict=True) if v is not None} for row in written(batch.columns)
        ]

    def encoder(self) -> Any:
        """An encoder of the value's columns."""
        return self.format.encoder(self.schema.select(self.value), self._raw_options)

    # -- bytes to rows ----------------------------------------------------------------------

    def row_of_fields(self, fields: dict[bytes, bytes], wanted: Sequence[int], where: str) -> tuple[Any, ...]:
        """The row of a hash or an entry. Raises RecordError for a field that does not fit its column's
        type."""
        chosen = [self.schema.fields[i] for i in wanted]
        return tuple(read_value(f, fields.get(f.name.encode()), where) for f in chosen)

    def decoder(self, ctx: SourceContext, wanted: Sequence[int]) -> Any:
        """A decoder of the value's columns ``wanted``, which raises an error for a bad record."""

        def refuse(error: Exception, _data: bytes | None, _where: str) -> None:
            raise error

        projection = [self.value.index(i) for i in wanted]
        schema = self.schema.select(self.value)
        return self.format.decoder(FormatContext(schema, projection, ctx.options, refuse))


class Answers:
    """Makes rows from the key, the score and the value, one at a time, so that a bad row affects no other."""

    def __init__(self, shape: Shape, ctx: SourceContext) -> None:
        self._shape, self._ctx = shape, ctx
        self.schema: Schema = ctx.schema.select(ctx.projection)
        self._in_value = [i for i in ctx.projection if i in shape.value]
        self._decoder = None if shape.type_has_fields else shape.decoder(ctx, self._in_value)

    def rows(self, key: bytes, found: Any) -> list[tuple[Any, ...]]:
        """The rows at a key; ``found``: what the server gave for it. Bad rows are handled by the table's
        policy."""
        where = f"{OWNER}, key {key!r}"
        match self._shape.type:
            case "hash":
                parts = [(None, found)] if found else []
            case "zset":
                parts = [(score, member) for member, score in found]
            case "string":
                parts = [] if found is None else [(None, found)]
            case _:
                parts = [(None, member) for member in found]
        out = []
        for score, data in parts:
            try:
                out.append(self._row(key, score, data, where))
            except PenstockError as err:
                raw = data if isinstance(data, bytes) else repr(data).encode()
                self._ctx.bad_record(err, raw, where)
        return out

    def _row(self, key: bytes, score: Any, data: Any, where: str) -> tuple[Any, ...]:
        shape = self._shape
        texts = shape.template.values(key) or ()
        in_key = dict(zip(shape.template.columns, texts, strict=False))
        if shape.type_has_fields:
            fields = {**data, **{shape.schema.names[i].encode(): text for i, text in in_key.items()}}
            return shape.row_of_fields(fields, self._ctx.projection, where)
        assert self._decoder is not None
        values = dict(
            zip(self._in_value, self._decoder.decode([data], lambda _: where).to_pylist()[0], strict=True)
        )
        for i, text in in_key.items():
            values[i] = read_value(shape.schema.fields[i], text, where)
        if shape.score is not None:
            values[shape.score] = read_value(shape.schema.fields[shape.score], _number(score), where)
        return tuple(values[i] for i in self._ctx.projection)


def _number(score: float) -> bytes:
    """A score as the text of a whole number where it is one, so that integer columns can hold it."""
    return (b"%d" % score) if score == int(score) else repr(score).encode()
