"""Compiles expressions to functions over batches.

``compile_expr`` computes constants at once. A sub-expression that occurs several times is computed once per
batch. CASE, COALESCE, AND and OR evaluate an argument that can fail, or is expensive, only on the rows that
need it. A plain column needs no work. Errors of a row are ``RecordError`` with the position of the call in the
SQL text and the call itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import InternalError, PenstockError
from penstock.functions.expr import (
    Call,
    Expr,
    FieldAccess,
    InputRef,
    Literal,
    PythonCall,
    children,
)
from penstock.functions.expression_text import text
from penstock.functions.python_calls import python_kernel
from penstock.functions.registry import is_deterministic, lookup
from penstock.functions.rewrites import rewrite, without_position
from penstock.functions.vector import Scalar, as_column, retyped
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.vector import Vector
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

    FunctionLoader = Callable[[str], Any]
    Run = Callable[["Frame"], Vector]


class Frame:
    """The rows an expression is evaluated on: a batch, or some rows of a parent frame."""

    __slots__ = ("_columns", "_parent", "_rows", "memo", "n")

    def __init__(
        self, columns: Sequence[Column], n: int, parent: Frame | None = None, rows: np.ndarray | None = None
    ) -> None:
        self._columns = columns
        self.n = n
        self._parent = parent
        self._rows = rows
        #: Results of shared sub-expressions by their number.
        self.memo: dict[int, Vector] = {}

    def column(self, index: int) -> Column:
        """Column ``index`` of the batch, reduced to the rows of this frame."""
        if self._parent is None:
            return self._columns[index]
        # Column i is stored among the shared results, under a number of its own.
        found = self.memo.get(~index)
        if found is None:
            assert self._rows is not None
            found = self.memo[~index] = self._parent.column(index).take(self._rows)
        return found  # type: ignore[return-value]

    def select(self, rows: np.ndarray) -> Frame:
        """A frame of these rows only (ascending indices)."""
        return self if len(rows) == self.n else Frame((), len(rows), self, rows)

    def shared(self, number: int) -> Vector | None:
        """The result of a shared sub-expression, here or in the parent frame; None if it was not computed yet."""
        found = self.memo.get(number)
        if found is None and self._parent is not None:
            found = self._parent.shared(number)
            if isinstance(found, Column):
                assert self._rows is not None
                found = found.take(self._rows)
            if found is not None:
                self.memo[number] = found
        return found


class Node:
    """A compiled sub-expression.

    ``constant`` is its value if it does not depend on the row. ``fails``: it may raise for some rows.
    ``costly``: running it on fewer rows saves time.
    """

    __slots__ = ("constant", "costly", "fails", "run", "type")

    def __init__(
        self,
        type_: Any,
        run: Run,
        *,
        fails: bool = False,
        costly: bool = False,
        constant: Scalar | None = None,
    ) -> None:
        self.type = type_
        self.run = run
        self.fails = fails
        self.costly = costly
        self.constant = constant

    @property
    def eager(self) -> bool:
        """Whether it may be evaluated on all rows: it cannot fail and is cheap."""
        return not (self.fails or self.costly)


def compile_expr(
    expr: Expr, functions: FunctionLoader | None = None, schema: Schema | None = None
) -> Callable[[Batch], Column]:
    """A function from a batch to the expression's column.

    ``functions(name)`` loads a user's function. ``schema``: the batch's columns, which errors of rows name.
    """
    if isinstance(expr, InputRef):
        index = expr.index
        return lambda batch: batch.columns[index]
    evaluate = compile_projection([expr], functions, schema)
    return lambda batch: evaluate(batch)[0]


def compile_projection(
    exprs: Sequence[Expr], functions: FunctionLoader | None = None, schema: Schema | None = None
) -> Callable[[Batch], list[Column]]:
    """A function from a batch to the columns of several expressions, which share common sub-expressions."""
    compiler = _Compiler(exprs, functions, schema)
    nodes = [compiler.compile(e) for e in compiler.exprs]
    if all(isinstance(e, InputRef) for e in compiler.exprs):
        indices = [e.index for e in compiler.exprs]  # type: ignore[union-attr]
        return lambda batch: [batch.columns[i] for i in indices]
    runs = [node.run for node in nodes]

    def evaluate(batch: Batch) -> list[Column]:
        n = batch.num_rows
        frame = Frame(batch.columns, n)
        with np.errstate(all="ignore"):
            return [as_column(run(frame), n) for run in runs]

    return evaluate


def compile_predicate(
    expr: Expr, functions: FunctionLoader | None = None, schema: Schema | None = None
) -> Callable[[Batch], np.ndarray]:
    """A function from a batch to a boolean mask of the rows where the expression is TRUE (NULL counts as FALSE)."""
    compiler = _Compiler([expr], functions, schema)
    run = compiler.compile(compiler.exprs[0]).run

    def evaluate(batch: Batch) -> np.ndarray:
        n = batch.num_rows
        with np.errstate(all="ignore"):
            out = run(Frame(batch.columns, n))
        return true_mask(out, n)

    return evaluate


def true_mask(vector: Vector, n: int) -> np.ndarray:
    """A boolean mask of the rows where a BOOLEAN is TRUE."""
    if isinstance(vector, Scalar):
        return np.full(n, bool(vector.value), np.bool_)
    valid = vector.valid
    return vector.values if valid is None else vector.values & valid


def evaluate_constant(expr: Expr) -> Scalar | None:
    """The value of an expression that reads no input column; None if it reads one. Errors of the expression are
    raised."""
    node = _Compiler([expr], None).compile(rewrite(expr))
    if node.constant is None and not _has_inputs(expr):
        return _as_scalar(node.run(Frame((), 1)), expr)
    return node.constant


class _Compiler:
    def __init__(
        self, exprs: Sequence[Expr], functions: FunctionLoader | None, schema: Schema | None = None
    ) -> None:
        self.functions = functions
        self.schema = schema
        # Positions differ between equal calls; they are ignored when equal calls are searched.
        self.exprs = [rewrite(e) for e in exprs]
        self.counts: Counter[Expr] = Counter()
        for expr in self.exprs:
            self._count(without_position(expr))
        self.numbers: dict[Expr, int] = {}

    def _count(self, expr: Expr) -> None:
        if isinstance(expr, (InputRef, Literal)):
            return
        self.counts[expr] += 1
        if self.counts[expr] == 1:
            for child in children(expr):
                self._count(child)

    def compile(self, expr: Expr) -> Node:
        match expr:
            case InputRef(index=index):
                return Node(expr.type, lambda frame: frame.column(index))
            case Literal():
                scalar = Scalar.of_literal(expr)
                return Node(expr.type, lambda frame: scalar, constant=scalar)
            case FieldAccess():
                return self._share(expr, self._field(expr))
            case PythonCall():
                return self._share(expr, self._python(expr))
            case Call():
                return self._share(expr, self._call(expr))
        raise InternalError(f"not an expression: {expr!r}")

    def _call(self, call: Call) -> Node:
        definition = lookup(call.function)
        nodes = [self.compile(a) for a in call.args]
        fails = definition.fails(call) if callable(definition.fails) else definition.fails
        fails = fails or any(node.fails for node in nodes)
        costly = definition.costly or any(node.costly for node in nodes)
        if definition.form is not None:
            run = definition.form(call, nodes)
        elif definition.bind is not None:
            run = self._kernel_run(call, definition.bind(call), [node.run for node in nodes])
        else:
            raise InternalError(f"{definition.name} has no kernel")
        node = Node(call.type, run, fails=fails, costly=costly)
        if definition.deterministic and all(n.constant is not None for n in nodes):
            return _fold(call, node)
        return node

    def _kernel_run(self, call: Call, kernel: Any, runs: list[Run]) -> Run:
        schema = self.schema

        def run(frame: Frame) -> Vector:
            args = [arg(frame) for arg in runs]
            n = frame.n
            if args and not any(isinstance(a, Column) for a in args):
                args = [as_column(a, n) for a in args]
            try:
                return kernel(args, n)
            except PenstockError as error:
                if error.where is None:
                    error.where = place_of(call, schema)
                raise

        return run

    def _field(self, expr: FieldAccess) -> Node:
        inner = self.compile(expr.arg)
        index, type_ = expr.index, expr.type

        def run(frame: Frame) -> Vector:
            return retyped(as_column(inner.run(frame), frame.n).child(index), type_)

        return Node(type_, run, fails=inner.fails, costly=inner.costly)

    def _python(self, expr: PythonCall) -> Node:
        kernel = python_kernel(expr, self.functions)
        runs = [self.compile(a).run for a in expr.args]

        def run(frame: Frame) -> Vector:
            return kernel([arg(frame) for arg in runs], frame.n)

        return Node(expr.type, run, fails=True, costly=True)

    def _share(self, expr: Expr, node: Node) -> Node:
        """A node that computes a repeated sub-expression once per frame."""
        key = without_position(expr)
        if node.constant is not None or self.counts[key] < 2 or not is_deterministic(expr):
            return node
        number = self.numbers.setdefault(key, len(self.numbers))
        inner = node.run

        def run(frame: Frame) -> Vector:
            found = frame.shared(number)
            if found is None:
                found = frame.memo[number] = inner(frame)
            return found

        return Node(node.type, run, fails=node.fails, costly=node.costly)


#: The most characters of an expression in an error.
_MOST_TEXT = 200


def place_of(call: Call, schema: Schema | None) -> str:
    """Where a call stands in the user's text, and the call itself: ``line 3, column 8 of view 'v': (a / b)``.

    A column has its name in ``schema``, the input's; without it, ``$`` and its number.
    """
    places = [f"line {call.line}, column {call.column}"] if call.line else []
    places += [call.within] if call.within else []
    written = text(call, schema)
    shown = written if len(written) <= _MOST_TEXT else f"{written[:_MOST_TEXT]} …"
    return f"{' of '.join(places)}: {shown}" if places else shown


def _fold(call: Call, node: Node) -> Node:
    """The node's constant. An error is kept until a row reaches it, which may never happen."""
    try:
        with np.errstate(all="ignore"):
            scalar = _as_scalar(node.run(Frame((), 1)), call)
    except PenstockError:
        return node
    return Node(call.type, lambda frame: scalar, constant=scalar)


def _as_scalar(vector: Vector, expr: Expr) -> Scalar:
    if isinstance(vector, Scalar):
        return vector
    return Scalar(expr.type, vector.storage_list()[0])


def _has_inputs(expr: Expr) -> bool:
    return isinstance(expr, (InputRef, PythonCall)) or any(_has_inputs(c) for c in children(expr))
