"""The conformance kit of formats."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.columnar.rows import make_row
from penstock.errors import PenstockError, SpecError
from penstock.formats.api import FileContext, FormatContext
from penstock.testing.conformance.base import Conformance, refusal
from penstock.testing.conformance.driving import BadRecords
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.formats.api import Block, Decoder, Encoder, FileFormat, Format

Rows = Sequence[tuple[Any, ...]]

_TEXT, _INT = t.VarCharType(), t.IntType()
_ROW = t.RowType((t.Field("name", _TEXT), t.Field("n", _INT)))
#: Each logical type with values of it; NULL is added where the type is nullable.
VALUES: tuple[tuple[Any, list[Any]], ...] = (
    (t.BooleanType(), [True, False]),
    (t.TinyIntType(), [-128, 0, 127]),
    (t.SmallIntType(), [-(2**15), 2**15 - 1]),
    (t.IntType(), [-(2**31), 0, 2**31 - 1]),
    (t.BigIntType(), [-(2**63), 0, 2**63 - 1]),
    (t.FloatType(), [0.5, -1.25, 3.0]),
    (t.DoubleType(), [0.1, -1e300, 5e-324]),
    (t.DecimalType(10, 2), [Decimal("12.30"), Decimal("-0.01")]),
    (t.DecimalType(38, 10), [Decimal("1234567890123456789012345678.0123456789")]),
    (t.CharType(3), ["abc"]),
    (t.VarCharType(), ["plain", 'Grüße, "you"', "two\tcells; 'one' | line", "雪"]),
    (t.BinaryType(2), [b"\x00\xff"]),
    (t.VarBinaryType(), [b"bytes", b"\x00\x01\xfe"]),
    (t.DateType(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (t.TimeType(), [dt.time(0, 0), dt.time(23, 59, 59)]),
    (
        t.TimestampType(3),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), dt.datetime(2024, 2, 29, 1, 2, 3, 4_000)],
    ),
    (t.TimestampType(6), [dt.datetime(2024, 2, 29, 1, 2, 3, 4)]),
    (t.TimestampLtzType(3), [dt.datetime(2024, 2, 29, 1, 2, 3, 4_000, tzinfo=dt.UTC)]),
    (t.YearMonthIntervalType(), [14]),
    (t.DayTimeIntervalType(), [dt.timedelta(days=2, milliseconds=5)]),
    (t.ArrayType(_TEXT), [["a", None, "b"], []]),
    (t.ArrayType(t.ArrayType(_INT)), [[[1], None, []]]),
    (t.MapType(t.VarCharType(nullable=False), _INT), [{"a": 1, "b": None}, {}]),
    (t.MultisetType(t.VarCharType(nullable=False)), [{"a": 2}]),
    (_ROW, [make_row(("name", "n"), ("x", 1)), make_row(("name", "n"), (None, 2))]),
    (t.ArrayType(_ROW), [[make_row(("name", "n"), ("x", 1)), None]]),
)


class FormatConformance(Conformance):
    """Checks a format: encodes and decodes every logical type as a message, a batch of messages and a file;
    checks NULL, projection, bad input with its place, parts of files, resuming at every block, and each
    codec.

    The author gives ``format``. ``options``: options of the table, beside the format's own defaults.
    ``null_is_empty``: types whose NULL and empty value the format cannot distinguish; they are not compared.
    """

    #: Options of the table, with the format's prefix.
    options: Mapping[str, str] = {}
    #: Whether text NULL comes back as NULL (CSV and raw lines have none).
    keeps_null_text = True
    #: The columns of the checks with several rows; a format that has only one column overrides this.
    schema: Schema = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("price", t.DoubleType()))
    #: Whether the format recognizes broken messages and lines.
    finds_bad_records = True
    #: Whether every column can be read alone.
    projects = True

    def format(self) -> Format:
        """A new object of the format."""
        raise NotImplementedError

    def rows(self, count: int) -> list[tuple[Any, ...]]:
        """``count`` different rows of ``schema``."""
        return [(i, f"name {i}", i / 4) for i in range(count)]

    def broken(self, message: bytes) -> bytes:
        """A record that the format cannot read, made from a good one, ``message``."""
        return b"\xff\x00{" + message[: len(message) // 2]

    # -- types ------------------------------------------------------------------------------

    def test_every_type_comes_back_or_is_refused_by_name(self) -> None:
        wrong = []
        held = 0
        for type_, values in VALUES:
            schema = Schema.of(("v", type_))
            try:
                self.format().check(schema, self.options)
            except PenstockError as err:
                if "v" not in f"{err.message} {err.got} {err.where}":
                    wrong.append(f"{type_}: refused without naming the column: {err.message}")
                continue
            held += 1
            try:
                wrong += [
                    f"{type_} {way}: {text}" for way, text in self._compare(schema, [(v,) for v in values])
                ]
            except Exception as err:
                wrong.append(f"{type_}: {type(err).__name__} {err}")
        assert not wrong, "\n".join(wrong)
        assert held, "the format holds no type at all"

    def test_null_comes_back(self) -> None:
        wrong = []
        for type_, values in VALUES:
            if isinstance(type_, (*t.STRINGS, *t.BINARIES)) and not self.keeps_null_text:
                continue
            # A second column is needed, because some formats take an empty line for no record.
            schema = Schema.of(("v", type_), ("w", t.IntType()))
            try:
                self.format().check(schema, self.options)
            except PenstockError:
                continue
            rows = [(None, 1), (values[0], 2), (None, 3)]
            wrong += [f"{type_} {way}: {text}" for way, text in self._compare(schema, rows)]
        assert not wrong, "\n".join(wrong)

    def test_many_rows_come_back_in_order(self) -> None:
        wrong = self._compare(self.schema, self.rows(1000))
        assert not wrong, str(wrong)

    def test_no_rows_come_back_as_none(self) -> None:
        wrong = self._compare(self.schema, [])
        assert not wrong, str(wrong)

    # -- columns ----------------------------------------------------------------------------

    def test_only_the_projected_columns_come(self) -> None:
        if not self.projects:
            return
        rows = self.rows(20)
        width = len(self.schema)
        for projection in ([], *[[i] for i in range(width)], list(reversed(range(width)))):
            want = [tuple(row[i] for i in projection) for row in rows]
            for way, got in self._ways(self.schema, rows, projection).items():
                assert got == want, f"{way}, columns {projection}: {got[:2]} …, not {want[:2]} …"

    # -- bad input ---------------------------------------------------------------------------

    def test_a_bad_record_is_reported_with_its_place_and_left_out(self) -> None:
        format_ = self.format()
        if not format_.messages or not self.finds_bad_records:
            return
        rows = self.rows(5)
        encoder = self._opened(format_.encoder(self.schema, self.options))
        messages = encoder.encode(Batch.of(self.schema, rows))
        messages[2] = self.broken(messages[2])
        bad = BadRecords("skip")
        decoder = self._prepared(format_.decoder(self._context(bad=bad)), messages)
        got = decoder.decode(messages, lambda i: f"message number {i}").to_pylist()
        assert got == [*rows[:2], *rows[3:]], f"around a bad record the rows are {got}"
        assert len(bad.kept) == 1, f"{len(bad.kept)} bad records were reported, not 1"
        error, _, where = bad.kept[0]
        assert "message number 2" in where, f"the place is given as {where!r}"
        assert isinstance(error, PenstockError), f"the error is a {type(error).__name__}"
        refusal(
            lambda: self._prepared(format_.decoder(self._context()), messages).decode(messages, str),
            "with the policy 'fail' a bad record raises nothing",
        )

    def test_a_damaged_file_is_an_error_that_names_it(self) -> None:
        files = self._files()
        if files is None or not self.finds_bad_records:
            return
        path = self._write(files, self.schema, [self.rows(50)])
        data = path.read_bytes()
        path.write_bytes(b"\xff\x00{ no " + data[8 : len(data) // 2])
        said = refusal(
            lambda: self._read(files, self.schema, path),
            "a file that was cut and overwritten is read without an error",
        )
        assert path.name in said, f"the error does not name the file: {said}"

    # -- files ------------------------------------------------------------------------------

    def test_parts_of_a_file_have_all_its_rows_once(self) -> None:
        files = self._files()
        if files is None:
            return
        batches = [self.rows(400)[i : i + 40] for i in range(0, 400, 40)]
        path = self._write(files, self.schema, batches)
        size = path.stat().st_size
        for part_bytes in (0, 1 << 30, size // 2 + 1, size // 7 + 1, 200):
            parts = files.parts(str(path), size, lambda: path.open("rb"), part_bytes)
            got = [row for part in parts for row in self._read(files, self.schema, path, part=part)]
            assert got == self.rows(400), f"cut at {part_bytes} bytes: {len(got)} rows in {len(parts)} parts"

    def test_reading_resumes_at_every_block(self) -> None:
        files = self._files()
        if files is None:
            return
        batches = [self.rows(400)[i : i + 40] for i in range(0, 400, 40)]
        path = self._write(files, self.schema, batches)
        part = files.parts(str(path), path.stat().st_size, lambda: path.open("rb"), 0)[0]
        blocks = [(at, rows) for at, rows in self._blocks(files, self.schema, path, part, None)]
        for at in dict.fromkeys(at for at, _ in blocks):
            want = [row for other, rows in blocks if other >= at for row in rows]
            got = [row for _, rows in self._blocks(files, self.schema, path, part, at) for row in rows]
            assert got == want, f"resumed at {at}: {len(got)} rows, not {len(want)}"

    def test_each_codec_writes_what_is_read(self) -> None:
        for key, option in self.format().options.options.items():
            if not key.endswith(".compression"):
                continue
            for codec in _choices(option.parse):
                wrong = self._compare(self.schema, self.rows(100), {**self.options, key: codec})
                assert not wrong, f"{codec}: {wrong}"

    # -- ways there and back ------------------------------------------------------------------

    def _compare(
        self, schema: Schema, rows: Rows, options: Mapping[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """(way, fault) for each way of encoding and decoding that does not return the same rows."""
        found = self._ways(schema, rows, None, options)
        rows = Batch.of(schema, rows).to_pylist()  # as Penstock shows its values
        assert found, "the format has neither messages nor files"
        wrong = []
        for way, got in found.items():
            if not _equal(got, list(rows)):
                at = next(
                    (i for i, (a, b) in enumerate(zip(got, rows, strict=False)) if not _equal([a], [b])), None
                )
                text = f"{len(got)} rows, not {len(rows)}" if at is None else f"{got[at]}, not {rows[at]}"
                wrong.append((way, text))
        return wrong

    def _ways(
        self,
        schema: Schema,
        rows: Rows,
        projection: Sequence[int] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> dict[str, list[tuple[Any, ...]]]:
        format_, options = self.format(), self.options if options is None else options
        batch = Batch.of(schema, rows)
        out: dict[str, list[tuple[Any, ...]]] = {}
        if format_.messages:
            encoder = self._opened(format_.encoder(schema, options))
            messages = encoder.encode(batch)
            assert len(messages) == len(rows), f"{len(messages)} messages for {len(rows)} rows"
            context = self._context(schema, projection, options)
            reading = self._prepared(format_.decoder(context), messages)
            out["as messages"] = reading.decode(messages, str).to_pylist()
            decoder = format_.decoder(self._context(schema, projection, options))
            if not decoder.has_header:
                data = encoder.encode_batch(batch)
                read = self._prepared(decoder, [data]).decode_batch(data, "data") if data else None
                out["as one message"] = [] if read is None else read.to_pylist()
        files = self._files()
        if files is not None:
            path = self._write(files, schema, [rows], options)
            out["as a file"] = self._read(files, schema, path, projection, options) if rows else []
        return out

    def _opened(self, encoder: Encoder) -> Encoder:
        """The encoder, after it has contacted the services that it needs."""
        self.within_patience(encoder.open())
        return encoder

    def _prepared(self, decoder: Decoder, messages: Sequence[bytes]) -> Decoder:
        """The decoder, after it has fetched what it needs for the messages."""
        missing = decoder.prepare(messages)
        if missing is not None:
            assert decoder.fetches, "a decoder that prepares something says so with 'fetches'"
            self.within_patience(missing)
        return decoder

    def _context(
        self,
        schema: Schema | None = None,
        projection: Sequence[int] | None = None,
        options: Mapping[str, str] | None = None,
        bad: BadRecords | None = None,
    ) -> FormatContext:
        schema = schema or self.schema
        return FormatContext(
            schema,
            range(len(schema)) if projection is None else projection,
            self.options if options is None else options,
            bad or BadRecords(),
        )

    def _files(self) -> FileFormat | None:
        return self.format().files

    def _write(
        self,
        files: FileFormat,
        schema: Schema,
        batches: Sequence[Rows],
        options: Mapping[str, str] | None = None,
    ) -> Path:
        path = self.folder / f"rows.{self.format().extension}"
        with path.open("wb") as file:
            writer = files.writer(file, schema, self.options if options is None else options)
            for rows in batches:
                writer.write(Batch.of(schema, rows))
            writer.close()
        return path

    def _read(
        self,
        files: FileFormat,
        schema: Schema,
        path: Path,
        projection: Sequence[int] | None = None,
        options: Mapping[str, str] | None = None,
        part: Mapping[str, Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        parts = (
            [part]
            if part is not None
            else files.parts(str(path), path.stat().st_size, lambda: path.open("rb"), 0)
        )
        return [
            row
            for one in parts
            for _, rows in self._blocks(files, schema, path, one, None, projection, options)
            for row in rows
        ]

    def _blocks(
        self,
        files: FileFormat,
        schema: Schema,
        path: Path,
        part: Mapping[str, Any],
        at: int | None,
        projection: Sequence[int] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[tuple[int, list[tuple[Any, ...]]]]:
        async def run(call: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(None, call)

        async def read() -> list[tuple[int, list[tuple[Any, ...]]]]:
            context = FileContext(
                path=str(path),
                part=part,
                open=lambda: path.open("rb"),
                run=run,
                format=self._context(schema, projection, options),
                batch_rows=100,
            )
            out = []
            block: Block
            async for block in files.reader(context).blocks(at):
                out.append((block.at, block.decode().to_pylist()))
            return out

        return self.within_patience(read())


def _equal(got: Sequence[Any], want: Sequence[Any]) -> bool:
    return len(got) == len(want) and all(map(_same, got, want))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return _equal(a, b)
    return type(a) is type(b) and a == b


def _choices(parse: Any) -> list[str]:
    """The values that an option made by ``choice(…)`` accepts. They are read from the error for a wrong
    value."""
    try:
        parse("\0no such choice")
    except SpecError as err:
        return [
            word.strip(" '") for word in (err.expected or "").replace(" or ", "|").split("|") if word.strip()
        ]
    return []
