"""Formats: bytes ↔ columns. ``get_format`` finds one by name.

A format decodes messages (one record each) or whole parts (many records), delivering
only the projected columns; a record that does not parse goes through
``FormatContext.bad_record`` and is left out when that returns.
"""

from __future__ import annotations

import importlib

from penstock.errors import ConnectorError, nearest
from penstock.formats.base import Format

__all__ = ["Format", "get_format", "known_formats"]

_FORMATS = {
    "json": "penstock.formats.json:JsonFormat",
    "csv": "penstock.formats.csv:CsvFormat",
    "raw": "penstock.formats.raw:RawFormat",
    "arrow": "penstock.formats.arrow:ArrowFormat",
    "parquet": "penstock.formats.parquet:ParquetFormat",
    "orc": "penstock.formats.orc:OrcFormat",
}
_loaded: dict[str, Format] = {}


def known_formats() -> list[str]:
    return sorted(_FORMATS)


def get_format(name: str | None, *, where: str = "") -> Format:
    """The format, or ``ConnectorError`` with the nearest known name."""
    if name is None or name not in _FORMATS:
        raise ConnectorError(
            f"unknown format '{name}'" if name else "option 'format' is missing",
            expected="'format' = one of " + ", ".join(known_formats()),
            got=repr(name) if name else "no such option",
            where=where or None,
            remedy=(nearest(name, known_formats()) if name else "add 'format' = 'json'"),
        )
    if name not in _loaded:
        module, attribute = _FORMATS[name].split(":")
        _loaded[name] = getattr(importlib.import_module(module), attribute)()
    return _loaded[name]
