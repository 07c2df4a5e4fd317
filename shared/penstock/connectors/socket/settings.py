"""The options of the connector ``socket``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SpecError
from penstock.options import Option, OptionSet, choice, integer, text

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'socket'"


def port(value: str) -> int:
    """A TCP port. Raises SpecError."""
    found = integer(value)
    if not 0 < found < 65_536:
        raise SpecError("not a port", expected="a number from 1 to 65535", got=repr(value))
    return found


def byte(value: str) -> int:
    """The number of a byte. Raises SpecError."""
    found = integer(value)
    if not 0 <= found < 256:
        raise SpecError("not a byte", expected="a number from 0 to 255", got=repr(value))
    return found


OPTIONS = OptionSet(
    OWNER,
    [
        Option("hostname", text, None, "The machine that listens.", required=True),
        Option("port", port, None, "Its port.", required=True),
        Option("byte-delimiter", byte, 10, "The number of the byte behind each record."),
        Option("scan.bounded.mode", choice("unbounded", "end-of-stream"), "unbounded", "end-of-stream: the table ends when the sender closes the connection.", role="source"),
    ],
)  # fmt: skip


def address(options: Mapping[str, str]) -> str:
    """``host:port`` of a table."""
    return f"{options['hostname']}:{options['port']}"
