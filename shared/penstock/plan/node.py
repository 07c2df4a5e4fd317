"""Plan nodes and the traits that they declare.

The rules and walks of the planner know no kind of node. They ask the node: which columns it reads and
passes, what holds for its rows, which changes it needs to see, where its rows come from, its line in
EXPLAIN, and which operators run it. A kind of node answers in its own folder below
``penstock.plan.operators``, or in another package: no list of nodes exists here.

The default answers here are safe for any operator: it reads every column, nothing may be pushed below it,
its rows have no key, and their order is lost. ``Unary`` and ``Binary`` answer for nodes that pass their
input's columns on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.jobgraph.loading import loaded
from penstock.plan.columns import (
    Mapping_,
    appended_schema,
    moved,
    referenced,
)
from penstock.plan.lineage import (
    UNSTORED,
    Relation,
    bounded,
    listed,
    opaque,
    table_set,
    typed,
    typed_row,
)
from penstock.plan.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.functions.expr import Expr
    from penstock.jobgraph.specs import WatermarkSpec
    from penstock.plan.lineage import Lineage, Meaning
    from penstock.plan.operator_graph import OperatorInput, PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner
    from penstock.plan.pushdown import PushDown
    from penstock.plan.translation import Translator
    from penstock.types.logical import Schema

replace = msgspec.structs.replace


class Node(msgspec.Struct, frozen=True, kw_only=True, tag_field="node"):
    """A logical operation and its traits. Nodes are immutable and compare by value. Column indices mean the
    columns of the node's input (of two inputs: the left columns, then the right)."""

    #: ``module:function`` that makes the operators, given (translator, node). The function has a module of
    #: its own, imported only when a plan is translated, because it may know other nodes, and the node must
    #: not.
    physical: ClassVar[str] = ""
    if TYPE_CHECKING:
        # Each node declares it as a field at a place of its own, because fingerprints depend on the order of
        # fields.
        schema: Schema

    # -- inputs --------------------------------------------------------------------------------

    def children(self) -> tuple[Node, ...]:
        """The nodes that this node reads."""
        return ()

    def over(self, inputs: tuple[Node, ...]) -> Node:
        """The same node over other inputs, which have the same schemas."""
        return self

    # -- columns -------------------------------------------------------------------------------

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        """The columns that the node needs of each input if ``need`` of its own columns are needed."""
        return [(child, set(range(len(child.schema)))) for child in self.children()]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        """The node over narrower inputs, and where each column that is left is now.

        Args:
            pruner: Prunes the inputs.
            need: Which of the node's columns are needed.
        """
        return pruner.whole(self)

    # -- what is known of the rows -------------------------------------------------------------

    def properties(self, analysis: Analysis) -> Properties:
        """Boundedness, time attributes, windows, updates and keys of the rows."""
        inputs = [analysis.of(child) for child in self.children()]
        return Properties(
            bounded=all(known.bounded for known in inputs), updating=any(known.updating for known in inputs)
        )

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        """Inputs whose rows' values every output row carries: the input, and where its columns are in the
        output (None: at their own places). Facts about such an input hold above the node, too."""
        return ()

    def own_facts(self) -> list[Expr]:
        """Conditions that every output row meets because of the node itself."""
        return []

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        """Whether the node never emits a row. ``empty[i]``: input i has no row."""
        return False

    # -- predicates ----------------------------------------------------------------------------

    def lowered(self, part: Expr) -> Expr | None:
        """A condition on the output as the same condition on the only input; None: it must stay above."""
        return None

    def push_down(self, pusher: PushDown, parts: list[Expr]) -> Node:
        """The node with ``parts``, conditions over its columns, applied as low as they may go; ``pusher`` places them."""
        return pusher.below(self, parts)

    def unawaited(self) -> tuple[str, Sequence[Expr]]:
        """Expressions that must not contain async functions, and their place in words."""
        return "", ()

    # -- changelog -----------------------------------------------------------------------------

    def changes(self) -> str | None:
        """The table whose changelog it reads: rows that somebody else updates and deletes; None: it reads none."""
        return None

    def asks_before(self, wanted: bool) -> bool:
        """Whether it needs the old row of an update (−U) of its inputs. ``wanted``: its consumers need it."""
        return True

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        """Whether all changes of a row come out of one subtask, those of the old row before those of the new one.

        ``key``: the columns that identify the row; ``analysis``: what is known of the nodes. For a key that is
        ``unique`` also: whether an update replaces the row of this key and no other, so that the old row need not
        be sent. Asked only where rows are updated.
        """
        return False

    # -- event time ----------------------------------------------------------------------------

    def clock(self) -> str | None:
        """What makes watermarks here, in words; None: nothing."""
        return None

    def with_watermarks(self, change: Callable[[WatermarkSpec], WatermarkSpec]) -> Node:
        """The node with the watermarks that it makes changed."""
        return self

    # -- side outputs --------------------------------------------------------------------------

    def side_tags(self) -> list[str] | None:
        """The tags of the node's side outputs; None: not known."""
        return None

    def side_input(self) -> Node | None:
        """The input whose rows its side outputs have; None: they have rows of their own."""
        return None

    # -- identity ------------------------------------------------------------------------------

    def relation(self, lineage: Lineage) -> Relation:
        """Which base tables the node reads, which rows it has, where its columns come from."""
        parts = [lineage.of(child) for child in self.children()]
        tables: frozenset[str] = frozenset().union(*(part.tables for part in parts))
        atom = bounded(f"{_tag(self)}({'; '.join(part.rows for part in parts)})")
        return opaque(tables, atom, tuple(f"{atom}.{name}" for name in self.schema.names))

    def role(self, op: PlannedOperator, lineage: Lineage) -> str:
        """What the operator ``op`` does, over which tables; part of its name. ``lineage``: of the nodes of the plan."""
        return f"{op.kind} {table_set(lineage.of(self).tables)}"

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        """What the state of the operator ``op`` means: (part → words, state → columns).

        Asked only of operators whose spec says that they have a meaning. ``lineage`` gives the words of the
        inputs. The default names the rows of all inputs: such a state is kept only while nothing below the
        operator changes.
        """
        return {f"input {i + 1}": typed_row(lineage.of(child), child.schema.types)
                for i, child in enumerate(self.children())}, {}  # fmt: skip

    def layout(self, op: PlannedOperator, meaning: dict[str, str]) -> str:
        """What must be equal so that the stored bytes of ``op`` can be read at all, given its ``meaning``."""
        parts = (part for part in meaning if part not in UNSTORED)
        return bounded("; ".join(f"{part}: {meaning[part]}" for part in parts))

    # -- words ---------------------------------------------------------------------------------

    def explained(self) -> str:
        """The node's line in EXPLAIN's logical plans."""
        return type(self).__name__

    def warnings(self, analysis: Analysis) -> Iterable[str]:
        """The warnings of EXPLAIN."""
        return ()

    def pushed_words(self) -> str:
        """What was pushed into a source, for EXPLAIN's notes; empty: nothing."""
        return ""

    # -- soundness and running -----------------------------------------------------------------

    def check(self) -> None:
        """Raises Unsound if the node names a column that its input does not have, or has with another type.
        The planner itself checks the column names and the event-time column of every node."""

    def translate(self, translator: Translator) -> PlannedOperator | OperatorInput:
        """Makes the operators that run the node, and returns the one whose output is the node's rows."""
        made: PlannedOperator | OperatorInput = loaded(self.physical)(translator, self)
        return made


class Unary(Node, frozen=True, kw_only=True):
    """A node whose output is its input's columns, then perhaps columns of its own."""

    #: Fields that name columns of the input: indices, sort keys, calls, windows or expressions.
    reads: ClassVar[tuple[str, ...]] = ()
    if TYPE_CHECKING:
        input: Node

    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def over(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])

    def keeps_rows(self) -> bool:
        """Whether the operator's state holds rows, so that each column costs memory."""
        return False

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        width = len(self.input.schema)
        wanted = {column for column in need if column < width}
        for name in self.reads:
            wanted |= referenced(getattr(self, name))
        return [(self.input, wanted)]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        child, at = pruner.own(self, self.input) if self.keeps_rows() else pruner.run(self.input)
        changes: dict[str, Any] = {name: moved(getattr(self, name), at) for name in self.reads}
        width, new_width = len(self.input.schema), len(child.schema)
        own = range(len(self.schema) - width)
        schema = appended_schema(child.schema, self.schema, at, width)
        mapping = {**at, **{width + i: new_width + i for i in own}}
        return replace(self, input=child, schema=schema, **changes), mapping

    def properties(self, analysis: Analysis) -> Properties:
        return analysis.of(self.input)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        """The words of the input's rows and of the columns that the node names; its other fields
        unchanged."""
        below = lineage.of(self.input)
        row = typed(below.columns, self.input.schema.types)
        parts = {"input": below.rows}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in self.reads:
                parts[name] = listed(row, sorted(referenced(value)))
            elif name not in ("input", "schema"):
                parts[name] = msgspec.json.encode(value, order="sorted").decode()
        return parts, {}


class Binary(Node, frozen=True, kw_only=True):
    """A node with a left and a right input."""

    if TYPE_CHECKING:
        left: Node
        right: Node

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def over(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])

    def role(self, op: PlannedOperator, lineage: Lineage) -> str:
        sides = sorted(table_set(lineage.of(side).tables) for side in self.children())
        return f"{op.kind} {' '.join(sides)}"


class Nary(Node, frozen=True, kw_only=True):
    """A node with any number of inputs."""

    if TYPE_CHECKING:
        inputs: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def over(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, inputs=inputs)


def _tag(node: Node) -> str:
    return str(node.__struct_config__.tag)


def inputs_of(node: Node) -> tuple[Node, ...]:
    """The nodes that ``node`` reads."""
    return node.children()


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other inputs (same schemas)."""
    if all(a is b for a, b in zip(inputs, node.children(), strict=True)):
        return node
    return node.over(inputs)
