"""Parts of a plan that give no row: LIMIT 0 and a condition that is never true.

They become ``Values`` without rows, so that a source behind them is not read: a query over an
unbounded one ends at once, as in Flink (its PruneEmptyRules).
"""

from __future__ import annotations

import base64
import io

import msgspec
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import Call, Expr, Literal, children
from penstock.functions.registry import is_deterministic
from penstock.plan import nodes as n
from penstock.plan.rewriting import conjuncts
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Field, IntType, Schema


def without_rows(node: n.Node) -> n.Node:
    """A rule for ``bottom_up``: the node, or a ``Values`` of its schema without rows."""
    if _gives_nothing(node):
        return empty(node.schema)
    if isinstance(node, n.Union_) and any(map(is_empty, node.inputs)):
        return msgspec.structs.replace(node, inputs=tuple(i for i in node.inputs if not is_empty(i)))
    return node


def empty(schema: Schema) -> n.Values:
    batch = Batch(schema, [Column.of(field.type, []) for field in schema.fields]).to_arrow()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return n.Values(schema=schema, data=base64.b64encode(sink.getvalue()).decode())


def is_empty(node: n.Node) -> bool:
    return isinstance(node, n.Values) and node.data == empty(node.schema).data


def _gives_nothing(node: n.Node) -> bool:
    match node:
        case n.Filter() if any(map(_never_true, conjuncts(node.condition))):
            return True
        case n.Limit() | n.Sort() if node.limit == 0:
            return True
        case n.Project() | n.Filter() | n.Limit() | n.Sort() | n.Over() | n.Expand() | n.Correlate():
            return is_empty(node.input)
        case n.Aggregate():
            return bool(node.keys) and is_empty(node.input)
        case n.Union_():
            return all(map(is_empty, node.inputs))
        case n.Join(kind=kind):
            left, right = is_empty(node.left), is_empty(node.right)
            if kind in ("inner", "semi"):
                return left or right
            return (left and right) or (left and kind in ("left", "anti")) or (right and kind == "right")
    return False


def _never_true(condition: Expr) -> bool:
    """Whether a condition is FALSE or NULL, whatever the row."""
    if isinstance(condition, Literal):
        return not condition.value
    if not _constant(condition) or not is_deterministic(condition):
        return False
    one = Batch(Schema((Field("ZERO", IntType(nullable=False)),)), [Column.of(IntType(nullable=False), [0])])
    try:
        value = compile_expr(condition)(one).to_pylist()[0]
    except (PenstockError, ArithmeticError, ValueError):
        return False  # It fails where a row meets it.
    return not value


def _constant(expr: Expr) -> bool:
    return isinstance(expr, Literal) or (isinstance(expr, Call) and all(map(_constant, children(expr))))
