"""Specs of operators that put changelogs in order, and of set operations."""

from __future__ import annotations

from typing import ClassVar, Literal

from penstock.jobgraph.specs.base import UPDATES, Keys, Spec


class MaterializeSpec(Spec, frozen=True, kw_only=True, tag="materialize"):
    """The upsert materialiser: it restores the order of changes per key before a sink with a primary key."""

    keeps_columns: ClassVar[bool] = True

    keys: tuple[int, ...]
    ttl_ms: int = 0

    def required_keys(self, width: int) -> Keys:
        return (self.keys,)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def keeps_state(self) -> bool:
        return True

    def reads_arrival(self) -> bool:
        return True

    def compaction(self) -> tuple[int, ...] | None:
        return self.keys

    def not_streamed(self) -> str | None:
        return UPDATES


class NormalizeSpec(Spec, frozen=True, kw_only=True, tag="normalize"):
    """Turns an upsert changelog into a changelog of whole rows, per key. ``emit_before``: with −U."""

    keeps_columns: ClassVar[bool] = True

    keys: tuple[int, ...]
    ttl_ms: int = 0
    emit_before: bool = True

    def required_keys(self, width: int) -> Keys:
        return (self.keys,)

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def keeps_state(self) -> bool:
        return True

    def compaction(self) -> tuple[int, ...] | None:
        return self.keys

    def not_streamed(self) -> str | None:
        return UPDATES


class FinalRowsSpec(Spec, frozen=True, kw_only=True, tag="final-rows"):
    """Keeps the rows of a bounded input, which later changes may take back, and emits those that are left at its end.

    ``keys``: columns by which the rows are partitioned; (): all rows are in one subtask.
    """

    keeps_columns: ClassVar[bool] = True

    keys: tuple[int, ...] = ()

    def required_keys(self, width: int) -> Keys:
        return (self.keys,)

    def keeps_state(self) -> bool:
        return True

    def native(self) -> str:
        return "penstock.spark.ordering:final_rows"

    def not_streamed(self) -> str | None:
        return "final rows of a stream that does not end"

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys


class SetOperationSpec(Spec, frozen=True, kw_only=True, tag="set-operation"):
    """INTERSECT or EXCEPT, with or without ALL, of two inputs that are hashed by all columns."""

    keeps_columns: ClassVar[bool] = True

    kind: Literal["intersect", "except"]
    all: bool = False

    def required_keys(self, width: int) -> Keys:
        return (tuple(range(width)), tuple(range(width)))

    def keeps_state(self) -> bool:
        return True

    def compaction(self) -> tuple[int, ...] | None:
        return ()

    def not_streamed(self) -> str | None:
        return UPDATES

    def native(self) -> str:
        return "penstock.spark.joins:set_operation"
