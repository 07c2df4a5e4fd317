"""What a delta is, as the job graph holds it."""

from __future__ import annotations

from typing import ClassVar

from penstock.jobgraph.specs import Spec


class DeltaSpec(Spec, frozen=True, kw_only=True, tag="delta"):
    """By how much the number ``value`` differs from that of the key's row before, appended; NULL for the
    first row of a key."""

    operator: ClassVar[str] = "tests.plan.outside.delta.operator:DeltaOperator"
    keeps_columns: ClassVar[bool] = True
    appends_columns: ClassVar[bool] = True

    keys: tuple[int, ...]
    value: int
    ttl_ms: int = 0

    def required_keys(self, width: int) -> tuple[tuple[int, ...] | None, ...]:
        return (self.keys,)

    def keeps_state(self) -> bool:
        return True

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def reads_arrival(self) -> bool:
        return True
