"""Procedures of CALL: what a connector can do to a stored table besides reading and writing rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ParameterKind = Literal["text", "whole number", "boolean", "time"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument. ``required``: it has no default. A time is given as ms since 1970."""

    name: str
    kind: ParameterKind
    required: bool = False


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure of a connector, which takes a table of it as its first argument, ``table``.

    Args:
        name: Its name, in lower case.
        parameters: The arguments behind ``table``, in order.
        columns: The names of the result's columns.
        run: Does it, with the table's options and the arguments that were given, by name; returns the result's row.
            Blocks. Raises PenstockError.
    """

    name: str
    parameters: tuple[Parameter, ...]
    columns: tuple[str, ...]
    run: Callable[[Mapping[str, str], Mapping[str, Any]], tuple[Any, ...]]
