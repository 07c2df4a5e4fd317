"""Formats: bytes to columns and back. ``penstock.formats.api`` is the port; ``get_format`` finds a format by
name.

A format decodes messages (one record each) or parts of files (many records), and delivers only the projected
columns. A record that cannot be parsed goes to ``FormatContext.bad_record``; it is left out if that function
returns.
"""

from penstock.formats.api import Format
from penstock.formats.registry import file_format, get_format, known_formats, message_format

__all__ = ["Format", "file_format", "get_format", "known_formats", "message_format"]
