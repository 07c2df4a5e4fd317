"""The names of indices: constant, or made from columns and times."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.texts import check_scalars, writer_of
from penstock.errors import ConnectorError, nearest
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types import Batch, Schema

_PART = re.compile(r"\{([^{}|]*)(?:\|([^{}]*))?\}")
#: The supported letters of Java's DateTimeFormatter.
_LETTERS = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "DDD": "%j",
}
_DEFAULT = {
    t.DateType: "yyyy_MM_dd",
    t.TimestampType: "yyyy_MM_dd_HH_mm_ss",
    t.TimestampLtzType: "yyyy_MM_dd_HH_mm_ss",
}


class IndexName:
    """``orders-{at|yyyy-MM-dd}``, ``log-{now()|yyyy}``, ``{customer}``; ``columns``: those in it."""

    def __init__(self, text: str, schema: Schema, owner: str) -> None:
        self._text, self._owner = text, owner
        self._parts: list[str | tuple[int | None, Callable[[Any], str]]] = []
        at = 0
        for found in _PART.finditer(text):
            self._parts += [text[at : found.start()], self._part(found[1].strip(), found[2], schema)]
            at = found.end()
        self._parts.append(text[at:])
        self.columns = tuple(p[0] for p in self._parts if isinstance(p, tuple) and p[0] is not None)

    def _part(
        self, name: str, pattern: str | None, schema: Schema
    ) -> tuple[int | None, Callable[[Any], str]]:
        if re.fullmatch(r"(now|current_timestamp)\(\)", name, re.IGNORECASE):
            return None, self._formatted(pattern or "yyyy_MM_dd_HH_mm_ss")
        if name not in schema.names:
            raise ConnectorError(
                f"option 'index' names no column of the table: '{name}'",
                expected="now() or one of " + ", ".join(schema.names),
                got=repr(self._text),
                where=self._owner,
                remedy=nearest(name, schema.names),
            )
        index = schema.index(name)
        type_ = schema.types[index]
        if type(type_) in _DEFAULT:
            return index, self._formatted(pattern or _DEFAULT[type(type_)])
        if pattern is not None:
            raise ConnectorError(
                f"'index' formats column '{name}', which is no time",
                expected="a DATE or TIMESTAMP before '|'",
                got=str(type_),
                where=self._owner,
                remedy=f"write '{{{name}}}'",
            )
        check_scalars([schema.fields[index]], self._owner)
        write = writer_of(type_)
        return index, lambda value: str(write(value))

    def _formatted(self, pattern: str) -> Callable[[Any], str]:
        out = ""
        for run in re.findall(r"([A-Za-z])(\1*)|([^A-Za-z])", pattern.replace("'", "")):
            letters = run[0] + run[1]
            if letters and letters not in _LETTERS:
                raise ConnectorError(
                    f"'index' has a time pattern that is not understood: '{letters}'",
                    expected="letters of " + ", ".join(_LETTERS),
                    got=repr(pattern),
                    where=self._owner,
                    remedy="write the time with these, such as yyyy-MM-dd",
                )
            out += _LETTERS[letters] if letters else run[2].replace("%", "%%")
        return lambda value: value.strftime(out)

    def names(self, batch: Batch, now: dt.datetime) -> list[str | None]:
        """The index of each row; None where a column of the name is NULL."""
        if len(self._parts) == 1:
            return [self._text] * len(batch)
        filled: list[list[str | None]] = []
        for part in self._parts:
            if isinstance(part, str):
                filled.append([part] * len(batch))
                continue
            column, write = part
            values = [now] * len(batch) if column is None else batch.columns[column].to_pylist()
            filled.append([None if v is None else write(v) for v in values])
        return [None if None in row else "".join(map(str, row)) for row in zip(*filled, strict=True)]
