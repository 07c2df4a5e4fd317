"""Records of database changes → rows with kinds, a batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.errors import RecordError
from penstock.formats.api import Decoder, FormatContext
from penstock.formats.json import JsonDecoder
from penstock.formats.reporting import redact
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.formats.changelog.dialect import Changes, Dialect
    from penstock.types.column import Column

#: A field that no record has, for a query that reads no column: a ROW has at least one.
_NONE = t.Field("\ue000", t.BooleanType())


class Records(Protocol):
    """Decodes the records themselves. ``rejected``: the numbers of those that are none, and why, since the last ``read``."""

    rejected: dict[int, Exception]

    def read(self, messages: Sequence[bytes]) -> Batch:
        """The records of ``messages`` but the rejected ones."""


class _JsonRecords(JsonDecoder):
    rejected: dict[int, Exception]

    def read(self, messages: Sequence[bytes]) -> Batch:
        self.rejected = {}
        return self.decode(messages, str)

    def _reject(self, err: Exception, message: bytes, where: str) -> None:
        self.rejected[int(where)] = err


def json_records(ctx: FormatContext) -> Records:
    """Decodes records that are JSON objects."""
    return _JsonRecords(ctx)


class ChangelogDecoder(Decoder):
    """Rows of the projection and then the metadata columns of ``ctx``. A record gives any number of rows.

    ``ignores_errors``: records that are no changes are skipped, and fields that do not fit are NULL.
    ``records``: makes what decodes the records, whose fields the schema of its context has. ``is_text``: errors show them.
    """

    def __init__(
        self,
        ctx: FormatContext,
        dialect: Dialect,
        *,
        ignores_errors: bool,
        records: Callable[[FormatContext], Records] = json_records,
        is_text: bool = True,
    ) -> None:
        self._is_text = is_text
        self._ctx, self._dialect, self._ignores = ctx, dialect, ignores_errors
        self._wanted = ctx.schema.select(ctx.projection).fields
        fields = tuple(t.Field(f.name, f.type.with_nullable(True)) for f in self._wanted) or (_NONE,)
        metadata = [t.Field(key, dialect.metadata[key]) for key in ctx.metadata]
        self._schema = t.Schema((*self._wanted, *metadata))
        envelope = t.Schema(tuple(dialect.fields(t.RowType(fields), ctx.metadata)))
        options = {"json.ignore-parse-errors": "true" if ignores_errors else "false"}
        if not is_text:
            options = dict(ctx.options)
        self._records = records(
            FormatContext(envelope, range(len(envelope)), options, ctx.bad_record, ctx.extra)
        )

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        return self.decode_numbered(messages, where)[0]

    def decode_batch(self, data: bytes, where: str) -> Batch:
        first = self._ctx.extra.get("lines_before", 0) + 1
        lines = [(i, line) for i, line in enumerate(data.split(b"\n"), first) if not line.isspace()]
        lines = [(i, line) for i, line in lines if line]
        return self.decode([line for _, line in lines], lambda i: f"{where}, line {lines[i][0]}")

    def decode_numbered(
        self, messages: Sequence[bytes], where: Callable[[int], str]
    ) -> tuple[Batch, np.ndarray]:
        # An empty message marks a key as deleted for the broker; it is no change.
        numbers = np.flatnonzero([len(m) > 0 for m in messages])
        given = [messages[i] for i in numbers.tolist()]
        records = self._records.read(given)
        bad: dict[int, Exception] = {int(numbers[i]): err for i, err in self._records.rejected.items()}
        if bad:
            keep = np.array([i not in self._records.rejected for i in range(len(given))], np.bool_)
            numbers = numbers[keep]
        records, wanted = self._dialect.opened(records)
        records, numbers = records.filter(wanted), numbers[wanted]
        given = [messages[i] for i in numbers.tolist()]
        changes = self._dialect.changes(records, given)
        rows = [c.take(changes.take) for c in changes.pool][: len(self._wanted)]
        self._refuse_nulls(changes, rows)
        bad.update({int(numbers[i]): err for i, err in changes.rejected.items()})
        for i in sorted(bad):
            self._report(bad[i], messages[i], where(i))
        good = np.ones(len(changes.message), np.bool_)
        if changes.rejected:
            good = ~np.isin(changes.message, list(changes.rejected))
        columns: list[Column] = [c.cast_type(f.type) for c, f in zip(rows, self._wanted, strict=True)]
        for key in self._ctx.metadata:
            columns.append(self._dialect.metadata_column(key, records, given).take(changes.message))
        kinds = changes.kinds if changes.kinds.any() else None
        batch = Batch(self._schema, columns, kinds=kinds, num_rows=len(changes.message))
        return batch.filter(good), numbers[changes.message[good]]

    def _refuse_nulls(self, changes: Changes, rows: Sequence[Column]) -> None:
        for field, column in zip(self._wanted, rows, strict=True):
            if field.type.nullable or column.valid is None:
                continue
            for i in changes.message[~column.valid].tolist():
                changes.rejected.setdefault(
                    i,
                    RecordError(
                        f"column '{field.name}' is NOT NULL",
                        expected=str(field.type),
                        got="null or no such field",
                        where=f"column '{field.name}'",
                    ),
                )

    def _report(self, err: Exception, message: bytes, where: str) -> None:
        if self._ignores:
            return
        if not isinstance(err, RecordError):
            err = RecordError("the record is not JSON", expected="one JSON object", got=str(err))
        err.where = f"{where}, {err.where}" if err.where else where
        hint = f"{err.remedy}, or mend" if err.remedy else "mend"
        shown = f"; it reads (redacted): {redact(message)}" if self._is_text else ""
        err.remedy = f"{hint} the record, or set 'on-error' to skip or dead-letter{shown}"
        self._ctx.bad_record(err, bytes(message), where)
