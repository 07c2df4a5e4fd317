"""Nodes of Flink's syntax that sqlglot does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sql.queries import QueryBinder
    from penstock.sql.scope import Relation

#: Window table functions.
WINDOW_FUNCTIONS = {"TUMBLE", "HOP", "CUMULATE", "SESSION"}


class TypedCast(exp.Expression):
    """CAST or TRY_CAST. The target ``LogicalType`` is in ``meta['type']``. ``difference``: the node is the
    interval ``(a - b) unit`` instead."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "safe": False, "difference": False}


class TypedLiteral(exp.Expression):
    """DATE '…', TIME '…', TIMESTAMP '…', INTERVAL '…' unit: ``kind`` and ``text``."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "text": True, "unit": False, "to": False}


class TableArgument(exp.Expression):
    """``TABLE t [PARTITION BY …]`` inside a table function."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "partition_by": False}


class Descriptor(exp.Expression):
    """``DESCRIPTOR(column)``."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class TableFunction(exp.Expression):
    """``TABLE(f(…))`` and ``LATERAL TABLE(f(…))``."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "expressions": False, "alias": False}


class AsOf(exp.Expression):
    """``t FOR SYSTEM_TIME AS OF expr``; ``this`` is the table."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "time": True, "alias": False}


class OptionsHint(exp.Expression):
    """``/*+ OPTIONS('k' = 'v') */`` behind a table's name. ``this`` is the hint's text; ``meta['options']``
    has the options. A table's node has the hint as its argument ``options_hint``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class SelectHint(exp.Expression):
    """A hint behind SELECT. ``this``: its name; ``meta['names']`` has the tables and ``meta['options']`` the options
    in its parentheses."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class JsonCall(exp.Expression):
    """A JSON function with clauses, which are a dict in ``meta['options']``."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "expressions": False}


class BoundTable(exp.Expression):
    """A table of the Table API where a query may stand. ``meta['bind']`` gives its relation for a binder."""

    arg_types: ClassVar[dict[str, bool]] = {}

    @classmethod
    def of(cls, bind: Callable[[QueryBinder], Relation]) -> BoundTable:
        """The node of the table that ``bind`` binds."""
        node = cls()
        node.meta["bind"] = bind
        return node
