"""Operators with faults that only whole jobs show, for the tests of the operators' kit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.jobgraph.specs import Spec
from penstock.operators.api import Operator, OperatorContext, OperatorSnapshot, Output, RestoredState
from penstock.plan.api import Node, PlannedOperator, Translator, Unary
from penstock.types.batch import Batch
from penstock.types.logical import Schema
from tests.plan.outside.delta.node import Delta
from tests.plan.outside.delta.spec import DeltaSpec


class HeldSpec(Spec, frozen=True, kw_only=True, tag="held"):
    """Holds rows back until the watermark passes their ``time``. ``repeats``: the fault that rows which the
    watermark let go stay in what is written to checkpoints."""

    operator: ClassVar[str] = "tests.testing.wrong_operators:HeldOperator"
    keeps_columns: ClassVar[bool] = True

    time: int
    repeats: bool = False

    def keeps_state(self) -> bool:
        return True


class HeldOperator(Operator):
    def __init__(self, spec: HeldSpec) -> None:
        self.spec = spec
        self._waiting: list[tuple[int, tuple[Any, ...]]] = []
        self._written: list[tuple[int, tuple[Any, ...]]] = []

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        if restored is not None:
            self._waiting = [pickle.loads(item) for item in restored.lists.get("held", [])]
        self._written = list(self._waiting)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        rows = list(zip(batch.columns[self.spec.time].values.tolist(), batch.to_pylist(), strict=True))
        self._waiting += rows
        self._written += rows
        return iter(())

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        due = [row for at, row in self._waiting if at <= watermark]
        self._waiting = [item for item in self._waiting if item[0] > watermark]
        if not self.spec.repeats:
            self._written = list(self._waiting)
        if due:
            yield Batch.of(self.ctx.output_schema, due)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(lists={"held": [pickle.dumps(item) for item in self._written]})


class Held(Unary, frozen=True, kw_only=True, tag="held"):
    reads: ClassVar[tuple[str, ...]] = ("time",)

    input: Node
    time: int
    repeats: bool
    schema: Schema

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = HeldSpec(time=self.time, repeats=self.repeats)
        return translator.add(
            self,
            "held",
            "Held",
            spec,
            [translator.visit(self.input)],
            keeps="rows that wait for the watermark",
        )


class MisplacedSpec(DeltaSpec, frozen=True, kw_only=True, tag="misplaced"):
    """A delta with the fault that Spark brings rows together by another column than its keys."""

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return (self.value,)


class Misplaced(Delta, frozen=True, kw_only=True, tag="misplaced"):
    def translate(self, translator: Translator) -> PlannedOperator:
        source, parallelism = translator.keyed(translator.visit(self.input), self.keys)
        spec = MisplacedSpec(keys=self.keys, value=self.value, ttl_ms=translator.ttl_ms)
        return translator.add(
            self, "misplaced", "Misplaced", spec, [source], parallelism=parallelism, hashed=self.keys,
            keeps=f"a number per key{translator.ttl_words()}",
        )  # fmt: skip
