"""NATS subjects: wildcards, overlap, and templates over columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import ConnectorError, RecordError, nearest
from penstock.formats.reporting import shorten
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types import Batch, Column
    from penstock.types.logical import Schema

_FIELD = re.compile(r"\{([^{}]*)\}")
_BAD_TOKEN = re.compile(r"[\s.*>]")


def has_wildcard(subject: str) -> bool:
    """Whether the subject is a filter with ``*`` or ``>``."""
    return any(token in ("*", ">") for token in subject.split("."))


def is_subject(text: str) -> bool:
    """Whether a message can be published to the subject: tokens joined by dots, no blank, no wildcard."""
    return all(text.split(".")) and not re.search(r"[\s*>]", text)


def overlaps(a: str, b: str) -> bool:
    """Whether some subject matches both filters."""
    left, right = a.split("."), b.split(".")
    for x, y in zip(left, right, strict=False):
        if x == ">" or y == ">":
            return True
        if x != y and "*" not in (x, y):
            return False
    return len(left) == len(right)


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject that matches ``narrow`` matches ``wide``."""
    outer, inner = wide.split("."), narrow.split(".")
    for i, x in enumerate(outer):
        if x == ">":
            return len(inner) > i
        if i >= len(inner) or inner[i] == ">" or (x != "*" and x != inner[i]):
            return False
    return len(outer) == len(inner)


def split_filters(text: str) -> list[str]:
    """``a.*;b`` → its filters. ConnectorError for a text that is no subject."""
    filters = [part.strip() for part in text.split(";") if part.strip()]
    for subject in filters:
        tokens = subject.split(".")
        if not all(tokens) or re.search(r"\s", subject) or ">" in tokens[:-1]:
            raise ConnectorError(
                f"option 'subject': '{subject}' is no NATS subject",
                expected="tokens joined by dots, '*' for one token, '>' for the rest",
                got=repr(subject),
                where="connector 'nats'",
                remedy="e.g. 'subject' = 'flights.*'",
            )
    return filters


class SubjectTemplate:
    """``flights.{origin}``: a subject for each row. Each column becomes one token."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self._parts = _FIELD.split(text)  # literal, column, literal, …
        self._columns: list[int] = []
        for name in self._parts[1::2]:
            if name not in schema.names:
                raise ConnectorError(
                    f"option 'subject': there is no column '{name}'",
                    expected="one of " + ", ".join(schema.names),
                    got=repr(text),
                    where="connector 'nats'",
                    remedy=nearest(name, schema.names) or "use a column of the table",
                )
            index = schema.index(name)
            if isinstance(schema.fields[index].type, (t.ArrayType, t.MapType, t.RowType, t.RawType)):
                raise ConnectorError(
                    f"option 'subject': column '{name}' is nested",
                    expected="a column of a plain type",
                    got=str(schema.fields[index].type),
                    where="connector 'nats'",
                    remedy="use a STRING or number column",
                )
            self._columns.append(index)
        split_filters(self.wildcard)
        if not self._columns and has_wildcard(text):
            raise ConnectorError(
                "option 'subject': a sink writes to subjects, not to wildcards",
                expected="a subject or a template such as 'flights.{origin}'",
                got=repr(text),
                where="connector 'nats'",
                remedy="put a column in braces where the '*' stands",
            )

    @property
    def wildcard(self) -> str:
        """The filter that matches every subject of the template."""
        return "".join(p if i % 2 == 0 else "*" for i, p in enumerate(self._parts))

    def subjects(self, batch: Batch, bad_row: Callable[[int, RecordError], None]) -> list[str | None]:
        """One subject for each row; None, after ``bad_row``, where a value cannot be a token."""
        if not self._columns:
            return [self.text] * len(batch)
        tokens = [self._tokens(batch.schema.fields[i].name, batch.columns[i], bad_row) for i in self._columns]
        literals = self._parts[0::2]
        out: list[str | None] = []
        for row in zip(*tokens, strict=True):
            if None in row:
                out.append(None)
            else:
                out.append(literals[0] + "".join(t + lit for t, lit in zip(row, literals[1:], strict=True)))
        return out

    def _tokens(
        self, name: str, column: Column, bad_row: Callable[[int, RecordError], None]
    ) -> list[str | None]:
        """Text of each value; checked once per distinct value."""
        encoded = column.to_external_arrow().cast(pa.string()).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        fine = [bool(text) and not _BAD_TOKEN.search(text) for text in texts]
        out: list[str | None] = []
        for row, code in enumerate(encoded.indices.to_pylist()):
            if code is not None and fine[code]:
                out.append(texts[code])
                continue
            out.append(None)
            value = None if code is None else texts[code]
            error = RecordError(
                f"column '{name}' gives no subject token",
                expected="text without dots, blanks, '*' and '>', not NULL",
                got=shorten(value),
                where=f"subject template '{self.text}'",
                remedy="clean the column in the query, e.g. REPLACE(…, '.', '_')",
            )
            bad_row(row, error)
        return out
