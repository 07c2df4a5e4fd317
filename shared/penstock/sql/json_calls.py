"""Calls of the JSON functions, whose clauses are arguments of a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr, Literal
from penstock.sql import literals
from penstock.sql.syntax import JsonCall
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.expressions import ExpressionBinder

#: The clauses of each JSON function. Functions that are not listed take NULL | ABSENT ON NULL.
_JSON_OPTIONS = {
    "JSON_VALUE": ("returning", "on_empty", "on_error"),
    "JSON_QUERY": ("returning", "wrapper", "on_empty", "on_error"),
    "JSON_EXISTS": ("on_error",),
}
_JSON_WORDS = {
    "returning": "RETURNING", "wrapper": "WRAPPER", "on_empty": "ON EMPTY", "on_error": "ON ERROR", "on_null": "ON NULL",
}  # fmt: skip


def json_call(binder: ExpressionBinder, node: JsonCall) -> Expr:
    """The call that ``node`` means, with its clauses as arguments. Raises
    SqlError for a clause that it lacks."""
    name, options = node.args["name"], node.meta["options"]
    args = [binder.bind(e) for e in node.expressions]
    null = Literal(None, t.NullType())
    for option in options:
        if option not in _JSON_OPTIONS.get(name, ("on_null",)):
            raise binder.source.error(
                f"{name} takes no {_JSON_WORDS[option]}",
                node,
                remedy="docs/functions.md shows its clauses",
            )
    defaults = ("on_empty", "on_error") if name != "JSON_VALUE" else ()
    default = next((o for o in defaults if options.get(o, ("",))[0] == "DEFAULT"), None)
    if default is not None:
        raise binder.source.error(
            f"{name} takes no DEFAULT value",
            node,
            expected=f"NULL, EMPTY ARRAY … or ERROR {_JSON_WORDS[default]}",
        )
    if name == "JSON_VALUE":
        if not options:
            return binder.call(name, args, node)
        for key in ("on_empty", "on_error"):
            word, default = options.get(key, ("NULL", None))
            args += [literals.string(word), binder.bind(default) if default is not None else null]
        return binder.call(name, args, node, options.get("returning"))
    if name == "JSON_QUERY":
        if options:
            args.append(literals.string(options.get("wrapper", "WITHOUT")))
            args += [literals.string(options.get(k, ("NULL", None))[0]) for k in ("on_empty", "on_error")]
        return binder.call(name, args, node, options.get("returning"))
    if name == "JSON_EXISTS":
        if "on_error" in options:
            args.append(literals.string(options["on_error"][0]))
        return binder.call(name, args, node)
    return binder.call(name, [literals.string(options["on_null"]), *args], node)
