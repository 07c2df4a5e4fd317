"""What a notebook shows of streams, tables and rows: plain tables of HTML, with every text escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.types.logical import Schema


def columns_html(kind: str, schema: Schema, note: str) -> str:
    """Names and types of the columns of a ``kind`` (``Table``, ``DataStream``), and a sentence below."""
    rows = [(field.name, str(field.type)) for field in schema.fields]
    return f"<b>{escape(kind)}</b>" + rows_html(("column", "type"), rows, note)


def rows_html(names: Sequence[str], rows: Iterable[Sequence[str | None]], note: str) -> str:
    """Rows of texts below the ``names``; None is shown as NULL. ``note``: a sentence below."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{escape(note)}</small>"


def _cell(text: str | None) -> str:
    shown = "<i>NULL</i>" if text is None else escape(text)
    return f"<td style='text-align:left'>{shown}</td>"
