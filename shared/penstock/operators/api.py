"""The public port of operators for run time. A package with an operator of its own imports these names.

An operator derives from ``Operator``; a ``KeySpace`` and its tables hold its keyed state.
docs/extending/operators.md shows a complete example; ``penstock.plan.api`` is the port for planning.
"""

from penstock.columnar.sorting import stable_argsort
from penstock.operators.operator import MIN_WATERMARK, Operator, OperatorContext, Output
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.state.cells import NumberCells
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import CellTable, SlotTable
from penstock.types.batch import Batch
from penstock.types.column import Column

__all__ = [
    "MIN_WATERMARK",
    "Batch",
    "CellTable",
    "Column",
    "KeySpace",
    "NumberCells",
    "Operator",
    "OperatorContext",
    "OperatorSnapshot",
    "Output",
    "RestoredState",
    "SlotTable",
    "stable_argsort",
]
