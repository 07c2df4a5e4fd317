"""Binding of scalar expressions: syntax tree + relation → typed ``Expr``."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import PenstockError, SqlError
from penstock.functions.expr import Expr, Literal, PythonCall
from penstock.functions.registry import field_access, make_call
from penstock.sql import literals
from penstock.sql.assigning import assignable, nullable
from penstock.sql.json_calls import json_call
from penstock.sql.reading import column_parts, dotted_parts, flat, function_name, unescaped
from penstock.sql.syntax import JsonCall, TypedCast, TypedLiteral
from penstock.sql.table_operators import of_table
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sql.errors import Source
    from penstock.sql.functions import UserFunction, UserFunctions
    from penstock.sql.scope import Relation

_BINARY: dict[type, str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.EQ: "=", exp.NEQ: "<>",
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.DPipe: "||",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip


#: A chain of an associative operator that is longer than this becomes a shallow tree.
_SHORT_CHAIN = 32
#: The most operators in a chain that must be computed from left to right: each adds a level to the plan's
#: tree.
MAX_CHAIN = 150


class ExpressionBinder:
    """Binds expressions over one relation.

    ``special(node)`` gives the value of an aggregate, a group key, a window function or a subquery, and None
    for other nodes. ``bind`` asks it first. ``zone``: the session's time zone.
    """

    def __init__(
        self,
        relation: Relation,
        source: Source,
        *,
        zone: str = "UTC",
        functions: UserFunctions | None = None,
        special: Callable[[exp.Expression], Expr | None] | None = None,
    ) -> None:
        self.relation = relation
        self.source = source
        self.zone = zone
        self.functions = functions
        self.special = special

    def bind(self, node: exp.Expression) -> Expr:
        """The typed expression of a syntax node. Raises SqlError or UnsupportedError with its position."""
        if self.special is not None:
            known = self.special(node)
            if known is not None:
                return known
        return self._bind(node)

    def condition(self, node: exp.Expression, clause: str) -> Expr:
        """The expression of a condition. Raises SqlError, which names ``clause``, unless it is BOOLEAN."""
        bound = self.bind(node)
        if isinstance(bound.type, t.NullType):
            return Literal(None, t.BooleanType())
        if not isinstance(bound.type, t.BooleanType):
            raise self.source.error(
                f"{clause} needs a condition", node, expected="BOOLEAN", got=str(bound.type)
            )
        return bound

    def call(self, name: str, args: list[Expr], node: exp.Expression, type_: Any = None) -> Expr:
        """A typed call with the position of ``node``."""
        place = self.source.position(node)
        line, column, within = place.line, place.column, self.source.within
        return make_call(name, args, type=type_, line=line, column=column, within=within, zone=self.zone)

    # -- the cases ------------------------------------------------------------------------

    def _bind(self, node: exp.Expression) -> Expr:
        if type(node) in _BINARY:
            return self._chain(node)
        match node:
            case exp.Paren():
                return self.bind(node.this)
            case exp.Literal():
                return (
                    literals.string(node.this)
                    if node.is_string
                    else self._placed(literals.number, node.this, node)
                )
            case TypedLiteral():
                return self._placed(literals.typed, node, node)
            case exp.Null():
                return Literal(None, t.NullType())
            case exp.Boolean():
                return Literal(bool(node.this), t.BooleanType(nullable=False))
            case exp.HexString():
                import base64

                raw = bytes.fromhex(node.this)
                return Literal(base64.b64encode(raw).decode(), t.BinaryType(len(raw), nullable=False))
            case exp.UnicodeString():
                escape = node.args.get("escape")
                return literals.string(
                    unescaped(node.this, escape.this if isinstance(escape, exp.Expression) else "\\")
                )
            case exp.Column():
                return self._column(node)
            case exp.Dot():
                return self._dot(node)
            case exp.And() | exp.Or():
                word = "AND" if isinstance(node, exp.And) else "OR"
                return self.call(word, [self.bind(part) for part in flat(node, type(node))], node)
            case exp.Not():
                return self._not(node)
            case exp.Neg():
                return self._negative(node)
            case exp.Is():
                return self._is(node, negate=bool(node.args.get("negate")))
            case exp.Between():
                return self._between(node, negate=False)
            case exp.In():
                return self._in(node, negate=False)
            case exp.Like() | exp.SimilarTo() | exp.Escape():
                return self._like(node, negate=False)
            case exp.Case():
                return self._case(node)
            case TypedCast():
                if node.args.get("difference"):
                    pair = [self.bind(node.this.this), self.bind(node.this.expression)]
                    return self.call("MINUS_TEMPORAL", pair, node, node.meta["type"])
                name = "TRY_CAST" if node.args.get("safe") else "CAST"
                return self.call(name, [self.bind(node.this)], node, node.meta["type"])
            case JsonCall():
                return json_call(self, node)
            case exp.Anonymous():
                return self._function(node)
            case exp.Bracket():
                if len(node.expressions) != 1:
                    raise self.source.error("one index is expected", node, got=f"{len(node.expressions)}")
                return self.call("ITEM", [self.bind(node.this), self.bind(node.expressions[0])], node)
            case exp.Overlaps():
                both = [node.this, node.expression]
                if all(isinstance(side, exp.Tuple) and len(side.expressions) == 2 for side in both):
                    args = [self.bind(e) for side in both for e in side.expressions]
                    return self.call("OVERLAPS", args, node)
            case exp.Window():
                raise self.source.error(
                    "a window function (OVER) cannot stand here",
                    node,
                    expected="OVER in the SELECT list",
                    remedy="compute it in a subquery and use its column",
                )
            case exp.Subquery() | exp.Select() | exp.Exists():
                raise self.source.unsupported(
                    "a subquery cannot stand here",
                    node,
                    remedy="use it as a condition of WHERE or HAVING (IN, EXISTS), joined by AND, or join it",
                )
            case exp.Any() | exp.All():
                raise self.source.unsupported(
                    f"{type(node).__name__.upper()} (subquery) cannot stand here",
                    node,
                    remedy="use it as a condition of WHERE or HAVING, joined by AND",
                )
            case exp.Star():
                raise self.source.error("'*' cannot stand here", node, expected="an expression")
            case exp.Tuple():
                if len(node.expressions) == 1:
                    return self.bind(node.expressions[0])
                return self.call("ROW", [self.bind(e) for e in node.expressions], node)
        raise self.source.unsupported(
            f"this expression is not supported: {type(node).__name__.upper()}",
            node,
            remedy="docs/sql.md lists what can be written",
        )

    def _chain(self, node: exp.Expression) -> Expr:
        """The value of ``a + b - c + …``, which the parser nests to the left. A loop walks the chain, because
        recursion would be too deep for generated queries of thousands of terms."""
        spine = [node]
        while type(left := spine[-1].this) in _BINARY:
            if self.special is not None and self.special(left) is not None:
                break
            spine.append(left)
        bound, depth = self.bind(spine[-1].this), 0
        for kind, run in groupby(reversed(spine), type):
            nodes = list(run)
            terms = [bound, *(self.bind(part.expression) for part in nodes)]
            if len(terms) > _SHORT_CHAIN and _associative(_BINARY[kind], terms):
                bound = self._balanced(_BINARY[kind], terms, nodes)
                continue
            depth += len(nodes)
            if depth > MAX_CHAIN:
                raise self.source.error(
                    f"a chain of {len(spine)} operators is too long: their types are computed one after another",
                    node,
                    expected=f"at most {MAX_CHAIN} terms; any number of AND, OR, ||, and of + and * of integers "
                    "of one type",
                    got=f"'{_BINARY[kind]}' of {terms[0].type} and {terms[-1].type}",
                    remedy="put brackets around parts of it, or compute parts in a subquery",
                )
            for part, term in zip(nodes, terms[1:], strict=True):
                pair = [bound, term]
                bound = of_table(self, part, pair) or self.call(_BINARY[kind], pair, part)
        return bound

    def _balanced(self, function: str, terms: list[Expr], nodes: list[exp.Expression]) -> Expr:
        """The operands as a tree of the least depth: (a + b) + (c + d)."""
        while len(terms) > 1:
            pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
            terms = [self.call(function, pair, nodes[0]) if len(pair) == 2 else pair[0] for pair in pairs]
        return terms[0]

    def _placed(self, make: Callable[[Any], Expr], value: Any, node: exp.Expression) -> Expr:
        try:
            return make(value)
        except PenstockError as err:
            raise SqlError(
                err.message, expected=err.expected, got=err.got, where=self.source.where(node)
            ) from None

    def _column(self, node: exp.Column) -> Expr:
        parts = column_parts(node)
        if parts == ["PI"] and self.relation.find(parts, node, self.source) is None:
            return self.call("PI", [], node)
        return self.path(parts, node)

    def path(self, parts: list[str], node: exp.Expression) -> Expr:
        """``column``, ``table.column``, ``column.field`` … to any depth."""
        column, used = self.relation.resolve(parts, node, self.source)
        bound: Expr = self.relation.ref(column)
        place = self.source.position(node)
        for name in parts[used:]:
            bound = field_access(bound, name, line=place.line, column=place.column)
        return bound

    def _dot(self, node: exp.Dot) -> Expr:
        parts = dotted_parts(node)
        if parts is not None:
            return self.path(parts, node)
        inner = self.bind(node.this)
        place = self.source.position(node)
        return field_access(inner, node.expression.name, line=place.line, column=place.column)

    def _not(self, node: exp.Not) -> Expr:
        match node.this:
            case exp.Is() as inner:
                return self._is(inner, negate=True)
            case exp.Between() as inner:
                return self._between(inner, negate=True)
            case exp.In() as inner if not inner.args.get("query"):
                return self._in(inner, negate=True)
            case exp.Like() | exp.SimilarTo() | exp.Escape() as inner:
                return self._like(inner, negate=True)
        return self.call("NOT", [self.bind(node.this)], node)

    def _negative(self, node: exp.Neg) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Paren) and isinstance(inner.this, exp.Neg):
            twice = inner.this.this
            if isinstance(twice, exp.Literal) and not twice.is_string:
                return self._placed(literals.number, twice.this, node)
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return self._placed(literals.number, "-" + inner.this, node)
        return self.call("-", [self.bind(inner)], node)

    def _is(self, node: exp.Is, *, negate: bool) -> Expr:
        prefix = "IS NOT " if negate else "IS "
        match node.expression:
            case exp.Null():
                what = "NULL"
            case exp.Boolean(this=value):
                what = "TRUE" if value else "FALSE"
            case exp.Column() as column if column.name.upper() == "UNKNOWN":
                what = "UNKNOWN"
            case exp.JSON() as json:
                kind = json.this if isinstance(json.this, str) and json.this else ""
                if json.args.get("with_") or json.args.get("unique"):
                    raise self.source.unsupported(
                        "IS JSON … UNIQUE KEYS", node, remedy="leave UNIQUE KEYS out: keys are not compared"
                    )
                what = f"JSON {kind}".strip() if kind and kind != "VALUE" else "JSON"
            case other:
                raise self.source.error(
                    "IS must be followed by NULL, TRUE, FALSE, UNKNOWN, JSON or DISTINCT FROM", other or node
                )
        return self.call(prefix + what, [self.bind(node.this)], node)

    def _between(self, node: exp.Between, *, negate: bool) -> Expr:
        name = "BETWEEN SYMMETRIC" if node.args.get("symmetric") else "BETWEEN"
        args = [self.bind(node.this), self.bind(node.args["low"]), self.bind(node.args["high"])]
        return self.call(("NOT " if negate else "") + name, args, node)

    def _in(self, node: exp.In, *, negate: bool) -> Expr:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise self.source.unsupported(
                "IN (subquery) cannot stand here",
                node,
                remedy="use it as a condition of WHERE or HAVING, joined by AND",
            )
        args = [self.bind(node.this), *(self.bind(e) for e in node.expressions)]
        return self.call("NOT IN" if negate else "IN", args, node)

    def _like(self, node: exp.Expression, *, negate: bool) -> Expr:
        escape = None
        inner = node
        if isinstance(node, exp.Escape):
            inner, escape = node.this, node.expression
        if not isinstance(inner, (exp.Like, exp.SimilarTo)):
            raise self.source.error("ESCAPE belongs to LIKE or SIMILAR TO", node)
        negate = negate or bool(inner.args.get("negate"))
        name = "LIKE" if isinstance(inner, exp.Like) else "SIMILAR TO"
        args = [self.bind(inner.this), self.bind(inner.expression)]
        if escape is not None:
            args.append(self.bind(escape))
        return self.call(("NOT " if negate else "") + name, args, node)

    def _case(self, node: exp.Case) -> Expr:
        args: list[Expr] = []
        subject = self.bind(node.this) if node.this is not None else None
        for branch in node.args.get("ifs") or []:
            if subject is not None:
                condition = self.call("=", [subject, self.bind(branch.this)], branch)
            else:
                condition = self.condition(branch.this, "WHEN")
            args += [condition, self.bind(branch.args["true"])]
        default = node.args.get("default")
        args.append(self.bind(default) if default is not None else Literal(None, t.NullType()))
        return self.call("CASE", args, node)

    def _function(self, node: exp.Anonymous) -> Expr:
        name = function_name(node)
        for argument in node.expressions:
            if isinstance(argument, (exp.Distinct, exp.Star)):
                raise self.source.error(
                    f"{name} is no aggregate here", argument, expected="an aggregate with DISTINCT or *"
                )
        args = [self.bind(e) for e in node.expressions]
        user = self.functions.scalar(name) if self.functions is not None else None
        if user is not None:
            return self.user_call(user, args, node)
        return self.call(name.upper(), args, node)

    def user_call(self, user: UserFunction, args: list[Expr], node: exp.Expression) -> Expr:
        """The call of a user's function."""
        args = self.arguments_of(user, args, node)
        return PythonCall(
            user.name, tuple(args), user.result, user.per, user.asynchronous, user.deterministic
        )

    def arguments_of(self, user: UserFunction, args: list[Expr], node: exp.Expression) -> list[Expr]:
        """The arguments, cast to the types that the user's function declares. Raises SqlError if they do not
        fit; the rules are those of INSERT."""
        if user.arguments is None:
            return args
        expected = f"{user.name}({', '.join(map(str, user.arguments))})"
        if len(args) != len(user.arguments):
            noun = "argument" if len(user.arguments) == 1 else "arguments"
            raise self.source.error(
                f"{user.name} takes {len(user.arguments)} {noun}", node, expected=expected, got=str(len(args))
            )
        out = []
        for i, (arg, want) in enumerate(zip(args, user.arguments, strict=True)):
            have = arg.type.with_nullable(True)
            if have == want.with_nullable(True):
                out.append(arg)
            elif assignable(have, nullable(want)):
                out.append(self.call("CAST", [arg], node, want.with_nullable(arg.type.nullable)))
            else:
                raise self.source.error(
                    f"argument {i + 1} of {user.name} does not fit", node, expected=expected,
                    got=str(arg.type), remedy=f"CAST it AS {want.sql()}",
                )  # fmt: skip
        return out


def _associative(function: str, terms: list[Expr]) -> bool:
    """Whether ``terms`` may be grouped in any way. Integers of one type wrap to the same value, and text is
    concatenated. The type of a decimal sum and the value of a float sum depend on the grouping."""
    if function == "||":
        return all(isinstance(term.type, t.CharType | t.VarCharType) for term in terms)
    kinds = {type(term.type) for term in terms}
    return function in ("+", "*") and len(kinds) == 1 and kinds <= set(t.INTEGERS)
