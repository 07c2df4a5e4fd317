"""Typed options of connectors and formats: declared once, checked with errors that name the option."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.config import one_of, parse_bool, parse_bytes, parse_duration_ms, parse_int
from penstock.errors import ConnectorError, SpecError, nearest
from penstock.redaction import HIDDEN, hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "Option",
    "OptionSet",
    "boolean",
    "bytes_size",
    "character",
    "choice",
    "duration_ms",
    "integer",
    "number",
    "positive",
    "text",
]

#: Known to every table, whatever its connector. ``on-error``: what becomes of a record that
#: cannot be read (source) or written (sink).
COMMON = ("connector", "format", "on-error")
ON_ERROR = ("fail", "skip", "dead-letter")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a ``WITH`` clause.

    Args:
        key: Its name.
        parse: Types its text; raises SpecError for a text that is none.
        default: Its value, typed, if it is not given.
        doc: What it does, as a sentence.
        required: It must be given.
        role: ``source`` or ``sink`` if only one of them has it; None = both.
    """

    key: str
    parse: Callable[[str], Any]
    default: Any = None
    doc: str = ""
    required: bool = False
    #: Only for one role: ``source`` or ``sink``; None = both.
    role: str | None = None


class OptionSet:
    """The options of one connector or format.

    ``patterns``: prefixes of free-form keys (``fields.``, ``csv.``) checked by the owner.
    """

    def __init__(self, owner: str, options: Iterable[Option], *, prefixes: Iterable[str] = ()) -> None:
        self.owner = owner
        self.options = {o.key: o for o in options}
        self.prefixes = tuple(prefixes)

    def describe(self) -> dict[str, tuple[str, str | None, bool]]:
        """The form of ``Connector.options``: key → (doc, default text, required)."""
        return {
            o.key: (o.doc, None if o.default is None else str(o.default), o.required)
            for o in self.options.values()
        }

    def check(
        self,
        given: Mapping[str, str],
        *,
        role: str | None = None,
        also: Iterable[str] = (),
        prefixes: tuple[str, ...] = (),
    ) -> None:
        """Check the options of a table.

        Args:
            given: The table's options.
            role: ``source`` or ``sink``; None = both.
            also: Further known keys.
            prefixes: Prefixes of further keys, which their owner checks.

        Raises:
            ConnectorError: An option is unknown, missing or malformed.
        """
        known = {*self.options, *COMMON, *also}
        for key in given:
            if key not in known and not key.startswith((*self.prefixes, *prefixes)):
                raise ConnectorError(
                    f"unknown option '{key}'",
                    expected="one of " + ", ".join(sorted(known - {"connector"})),
                    # The key may be a password's, misspelt, so the value is not shown.
                    got=f"'{key}'",
                    where=self.owner,
                    remedy=nearest(key, known) or f"remove '{key}'",
                )
        for option in self.options.values():
            if option.required and option.key not in given and option.role in (None, role):
                raise ConnectorError(
                    f"option '{option.key}' is missing",
                    expected=f"'{option.key}' = '…': {option.doc}",
                    got="no such option",
                    where=self.owner,
                    remedy=f"add '{option.key}' to the table's WITH clause",
                )
            self.read_one(given, option.key)
        check_on_error(given, self.owner)

    def read_one(self, given: Mapping[str, str], key: str) -> Any:
        """The typed value of the option ``key`` in ``given``, or its default.

        Raises:
            ConnectorError: The text is malformed.
        """
        option = self.options[key]
        if key not in given:
            return option.default
        try:
            return option.parse(given[key])
        except SpecError as err:
            raise ConnectorError(
                f"option '{key}': {err.message}",
                expected=err.expected,
                got=HIDDEN if hidden(key, given[key]) else err.got,
                where=self.owner,
                remedy=err.remedy or f"write '{key}' as {err.expected}",
            ) from None

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """All options, typed, with defaults."""
        return {key: self.read_one(given, key) for key in self.options}


def check_on_error(given: Mapping[str, str], where: str) -> None:
    """ConnectorError for an ``on-error`` that is none of the policies."""
    policy = given.get("on-error", "fail")
    if policy not in ON_ERROR:
        raise ConnectorError(
            "option 'on-error': unknown policy",
            expected=" | ".join(ON_ERROR),
            got=repr(policy),
            where=where,
            remedy=nearest(policy, ON_ERROR) or "write 'on-error' = 'skip' to leave bad records out",
        )


text = str
boolean = parse_bool
integer = parse_int
duration_ms = parse_duration_ms
bytes_size = parse_bytes
choice = one_of


def number(value: str) -> float:
    """A number of any kind: ``0.5``.

    Raises:
        SpecError: ``value`` is none.
    """
    try:
        return float(value)
    except ValueError:
        raise SpecError("not a number", expected="e.g. 0.5", got=repr(value)) from None


_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\u0001": "\x01"}


def positive(value: str) -> int:
    """A whole number of 1 or more."""
    number = integer(value)
    if number < 1:
        raise SpecError("not a positive number", expected="1 or more", got=repr(value))
    return number


def character(value: str) -> str:
    r"""One character; ``\t`` and the like are understood.

    Raises:
        SpecError: ``value`` has another length.
    """
    value = _ESCAPES.get(value, value)
    if len(value) != 1:
        raise SpecError("not one character", expected="e.g. ',' or '\\t'", got=repr(value))
    return value
