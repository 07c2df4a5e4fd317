"""What the formats of database changes share: options, checks, decoder and encoder over a dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.formats.api import Encoder, Format
from penstock.formats.changelog.decode import ChangelogDecoder
from penstock.formats.json import OPTIONS as JSON_OPTIONS
from penstock.formats.json import wire_type
from penstock.formats.json_encode import JsonEncoder
from penstock.formats.lines import LineFiles
from penstock.options import Option, OptionSet, boolean, choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from penstock.formats.api import FormatContext
    from penstock.formats.changelog.dialect import Dialect
    from penstock.types.batch import Batch
    from penstock.types.logical import LogicalType, Schema


def option_set(name: str, more: Sequence[Option] = ()) -> OptionSet:
    """The options that all of these formats have, under their own prefix, and ``more``."""
    return OptionSet(
        f"format '{name}'",
        [
            Option(f"{name}.ignore-parse-errors", boolean, False, "Skip records that do not parse; bad fields are NULL."),
            Option(
                f"{name}.timestamp-format.standard", choice("SQL", "ISO-8601"), "SQL",
                "How time stamps are written: '2020-01-02 03:04:05.678' or '2020-01-02T03:04:05.678'; both are read.",
            ),
            Option(f"{name}.encode.decimal-as-plain-number", boolean, False, "Known from Flink: decimals are always written plain."),
            Option(f"{name}.encode.ignore-null-fields", boolean, False, "Leave NULL fields out."),
            *more,
        ],
    )  # fmt: skip


class ChangelogFormat(Format):
    """A format whose records are changes of rows. ``dialect_of``: how it says them, given its options."""

    changelog = True
    extension = "json"
    #: Made with the options, typed.
    dialect_of: ClassVar[type[Dialect]]

    def __init__(self) -> None:
        self.options = option_set(self.name, self.dialect_of.more_options)
        self.metadata: Mapping[str, LogicalType] = self.dialect_of.metadata
        self.files = LineFiles(self, cut=True)

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        self._dialect(options)
        for field in schema.fields:
            wire_type(field.type, required=False, path=field.name)

    def _read(self, options: Mapping[str, str]) -> dict[str, Any]:
        own = self.options.read({k: v for k, v in options.items() if k.startswith(f"{self.name}.")})
        return {key.removeprefix(f"{self.name}."): value for key, value in own.items()}

    def _dialect(self, options: Mapping[str, str]) -> Dialect:
        return self.dialect_of(self._read(options), f"format '{self.name}'")

    def decoder(self, ctx: FormatContext) -> ChangelogDecoder:
        ignores = self._read(ctx.options)["ignore-parse-errors"]
        return ChangelogDecoder(ctx, self._dialect(ctx.options), ignores_errors=ignores)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> ChangelogEncoder:
        dialect = self._dialect(options)
        dialect.check_writing()
        return ChangelogEncoder(schema, self._read(options), dialect)


class ChangelogEncoder(Encoder):
    """One record for each row: an old row (−U) as a deletion, a new one (+U) as an insertion, as Flink writes them."""

    def __init__(self, schema: Schema, options: Mapping[str, Any], dialect: Dialect) -> None:
        names = JSON_OPTIONS.read({})
        given = {f"json.{key}": value for key, value in options.items()}
        self._rows = JsonEncoder(schema, {**names, **{k: v for k, v in given.items() if k in names}})
        skips_nulls = options["encode.ignore-null-fields"]
        self._added, self._deleted = (
            dialect.written(added, skips_nulls=skips_nulls) for added in (True, False)
        )

    def encode(self, batch: Batch) -> list[bytes]:
        rows, signs = self._rows.encode(batch), batch.signs()
        (before, after), deleted = self._added, self._deleted
        if signs is None:
            return [before + row + after for row in rows]
        return [
            before + row + after if sign > 0 else deleted[0] + row + deleted[1]
            for row, sign in zip(rows, signs.tolist(), strict=True)
        ]

    def encode_batch(self, batch: Batch) -> bytes:
        lines = self.encode(batch)
        return b"\n".join(lines) + b"\n" if lines else b""
