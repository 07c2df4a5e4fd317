"""What the state of a Top-N means to a later version of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import specs as s
from penstock.plan import lineage as words

if TYPE_CHECKING:
    from penstock.plan.lineage import Relation


def top_n_meaning(spec: s.Spec, below: Relation, row: tuple[str, ...]) -> dict[str, str]:
    """What the state of a Top-N or a deduplication means. ``row``: its input's columns, typed."""
    parts = words.stored_rows(below, row)
    if isinstance(spec, s.TopNSpec):
        parts["keys"] = words.listed(row, spec.partition)
        parts["order"] = words.order_words(spec.order, below.columns)
        number = "with" if spec.rank_column else "without"
        parts["ranks"] = f"{spec.rank} {spec.first} to {spec.last}, {number} the number"
        parts["unique"] = words.listed(row, spec.unique_keys)
        parts["changes"] = f"{words.updates_words(spec.retracts)}, {words.befores_words(spec.emit_before)}"
        if spec.window is not None:
            parts["window"] = words.listed(row, spec.window)
        return parts
    assert isinstance(spec, s.DeduplicateSpec)
    parts["keys"] = words.listed(row, spec.keys)
    parts["keeps"] = f"{spec.keep} by {'arrival' if spec.time is None else row[spec.time]}"
    if spec.window is not None:
        parts["window"] = words.listed(row, spec.window)
    elif spec.keep == "first" and spec.time is None:
        parts["columns"] = "none"  # The state holds only keys that were seen.
    elif not spec.emit_before:
        parts["columns"] = "the time"
    return parts
