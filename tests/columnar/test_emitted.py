"""What a function emits is taken at once: later changes of the emitted value do not reach the record."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.columnar.emitted import fixer, for_consumers, taken
from penstock.columnar.rows import Row
from penstock.operators.output_tag import OutputTag
from penstock.types import Batch, Schema
from penstock.types import logical as t

INT, STRING = t.IntType(), t.VarCharType()


@dataclass
class Order:
    items: list[int]


@dataclass
class Pair:
    a: int
    b: int


@dataclass(slots=True)
class Slotted:
    a: int


class Bag(list[int]):
    pass


@pytest.mark.parametrize("value", [1, "a", None, (1, "a"), Row(1, "a"), b"x", 1.5])
def test_values_that_never_change_are_not_copied(value: Any) -> None:
    assert taken(value) is value


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda v: v.append(3)),
        ({"a": 1}, lambda v: v.update(a=2)),
        ({"a": [1]}, lambda v: v["a"].append(2)),
        ((1, [2]), lambda v: v[1].append(3)),
        (Order([1]), lambda v: v.items.append(2)),
        (Pair(1, 2), lambda v: setattr(v, "a", 3)),
        (Slotted(1), lambda v: setattr(v, "a", 3)),
        (Row(1, [2]), lambda v: v[1].append(3)),
        ({1, 2}, lambda v: v.add(3)),
        (Bag([1]), lambda v: v.append(3)),
    ],
)
def test_a_later_change_does_not_reach_what_was_taken(value: Any, change: Any) -> None:
    kept, before = taken(value), repr(value)
    change(value)
    assert repr(kept) == before
    assert repr(value) != before
    assert type(kept) is type(value)


def test_a_value_that_cannot_be_copied_is_taken_as_it_is() -> None:
    lock = [threading.Lock()]
    assert taken(lock) is lock


@pytest.mark.parametrize(
    ("schema", "record", "change"),
    [
        (Schema.of(("a", INT), ("b", STRING)), {"a": 1, "b": "x"}, lambda r: r.update(a=2)),
        (Schema.of(("a", INT), ("b", STRING)), [1, "x"], lambda r: r.append(2)),
        (Schema.of(("f0", INT), ("f1", t.ArrayType(INT))), (1, [2]), lambda r: r[1].append(3)),
        (Schema.of(("value", t.ArrayType(INT))), [1], lambda r: r.append(3)),
        (Schema.of(("value", t.RawType())), Order([1]), lambda r: r.items.append(3)),
    ],
)
def test_records_of_every_form(schema: Schema, record: Any, change: Any) -> None:
    fixed = fixer(schema)
    assert fixed is not None
    kept, before = fixed(record), repr(record)
    change(record)
    assert repr(kept) == before


def test_a_tag_of_a_side_output_is_not_copied() -> None:
    tag = OutputTag("late")
    kept = taken((tag, value := [1]))
    value.append(2)
    assert kept[0] is tag
    assert kept[1] == [1]


def test_bare_values_that_never_change_need_no_look() -> None:
    assert fixer(Schema.of(("value", STRING))) is None


def _drawn(batch: Batch, consumers: int) -> list[Any]:
    """What each consumer sees, when each changes its records before the next one gets its own."""
    seen = []
    for own in for_consumers(batch, consumers):
        values = own.columns[0].to_pylist()
        seen.append([copy.deepcopy(v) for v in values])
        for value in values:
            if value is not None:
                value.append(9)
    return seen


def test_each_consumer_of_a_batch_has_its_own_records() -> None:
    schema = Schema.of(("value", t.RawType()), ("n", INT))
    batch = Batch.of(schema, [([1, 2], 1), ([3, 4], 2), (None, 3)])
    assert _drawn(batch, 3) == [[[1, 2], [3, 4], None]] * 3


def test_one_consumer_and_values_that_never_change_cost_no_copy() -> None:
    batch = Batch.of(Schema.of(("value", t.RawType())), [([1],), ([2],)])
    assert list(for_consumers(batch, 1)) == [batch]
    fixed = Batch.of(Schema.of(("value", t.RawType())), [("a",), (None,)])
    assert [b.columns[0] is fixed.columns[0] for b in for_consumers(fixed, 2)] == [True, True]
