"""A delta in a plan. What it does not declare, the plan takes to be as for any operator."""

from __future__ import annotations

from typing import ClassVar

from penstock.plan.node import Node, Unary
from penstock.plan.operator_graph import PlannedOperator
from penstock.plan.translation import Translator
from penstock.types.logical import BigIntType, Field, Schema
from tests.plan.outside.delta.spec import DeltaSpec


class Delta(Unary, frozen=True, kw_only=True, tag="delta"):
    """The input's columns, then by how much ``value`` differs from the key's row before."""

    reads: ClassVar[tuple[str, ...]] = ("keys", "value")

    input: Node
    keys: tuple[int, ...]
    value: int
    schema: Schema

    def translate(self, translator: Translator) -> PlannedOperator:
        source, parallelism = translator.keyed(translator.visit(self.input), self.keys)
        spec = DeltaSpec(keys=self.keys, value=self.value, ttl_ms=translator.ttl_ms)
        return translator.add(
            self, "delta", "Delta", spec, [source], parallelism=parallelism, hashed=self.keys,
            keeps=f"a number per key{translator.ttl_words()}",
        )  # fmt: skip


def delta(node: Node, keys: tuple[int, ...], value: int) -> Delta:
    """The delta of BIGINT column ``value`` over a node."""
    fields = (*node.schema.fields, Field("delta", BigIntType()))
    return Delta(input=node, keys=keys, value=value, schema=Schema(fields, node.schema.rowtime))
