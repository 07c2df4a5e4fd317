"""The public port of operators, planning part: a package that brings an operator imports its plan node's
parts from here.

A node derives from ``Node`` or ``Unary``; ``Translator`` makes the operator of the physical plan; the words
of ``relation`` and ``meaning`` name its state in savepoints. docs/extending/operators.md shows one operator
from end to end. ``penstock.operators.api`` has the runtime part, and
``penstock.testing.OperatorConformance`` tests both.
"""

from penstock.functions.expr import Expr, input_refs
from penstock.functions.registry import is_deterministic
from penstock.plan.lineage import Lineage, Meaning, Relation, bounded, listed, opaque, typed
from penstock.plan.node import Node, Unary
from penstock.plan.operator_graph import PlannedOperator
from penstock.plan.state_size import INDEX_BYTES, about, row_bytes
from penstock.plan.translation import Translator
from penstock.plan.words import column_names

__all__ = [
    "INDEX_BYTES",
    "Expr",
    "Lineage",
    "Meaning",
    "Node",
    "PlannedOperator",
    "Relation",
    "Translator",
    "Unary",
    "about",
    "bounded",
    "column_names",
    "input_refs",
    "is_deterministic",
    "listed",
    "opaque",
    "row_bytes",
    "typed",
]
