"""What a debounce is, as the job graph holds it."""

from __future__ import annotations

from typing import ClassVar

from penstock.jobgraph.specs import Spec


class DebounceSpec(Spec, frozen=True, kw_only=True, tag="debounce"):
    """Rows of a key within ``quiet_us`` of the key's row before (by the column ``time``) are dropped.
    A key without rows for ``ttl_ms`` of processing time is forgotten; 0: never."""

    operator: ClassVar[str] = "tests.plan.outside.debounce.operator:DebounceOperator"
    keeps_columns: ClassVar[bool] = True

    keys: tuple[int, ...]
    time: int
    quiet_us: int
    ttl_ms: int = 0

    def required_keys(self, width: int) -> tuple[tuple[int, ...] | None, ...]:
        return (self.keys,)

    def keeps_state(self) -> bool:
        return True

    # On Spark: a key's rows together, in event time.

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.keys

    def event_order(self, index: int) -> str | int | None:
        return self.time

    def reads_arrival(self) -> bool:
        return True
