"""Declared states against those of a savepoint."""

from __future__ import annotations

import msgspec
import pytest

from penstock.api import ListStateDescriptor, MapStateDescriptor, Types, ValueStateDescriptor
from penstock.api.restore_check import declared_by, problems_of


class Asks:
    def __init__(self, *descriptors):
        self.descriptors = descriptors

    def open(self, context):
        for descriptor in self.descriptors:
            self.state = context.get_state(descriptor)
        context.get_index_of_this_subtask()


class NeedsMore(Asks):
    def open(self, context):
        super().open(context)
        raise ConnectionError("no database here")


def stored(**types) -> dict:
    return {"types": {name: msgspec.to_builtins(type_) for name, type_ in types.items()}}


@pytest.mark.parametrize("kind", [Asks, NeedsMore])
def test_what_open_asks_for_is_noted(kind):
    descriptors = (ValueStateDescriptor("n", Types.LONG()), ListStateDescriptor("l", Types.STRING()))
    function = kind(*descriptors)
    assert [d.state_name for d in declared_by(function, {})] == ["value/n", "list/l"]
    assert not hasattr(function, "state"), "a copy was opened"
    assert declared_by(len, {}) == []


@pytest.mark.parametrize(
    ("states", "descriptor", "says"),
    [
        ({"value/n": stored(value=Types.LONG())}, ValueStateDescriptor("n", Types.LONG()), None),
        ({"value/n": stored(value=Types.INT())}, ValueStateDescriptor("n", Types.LONG()), None),
        ({}, ValueStateDescriptor("n", Types.LONG()), None),
        (
            {"value/n": stored(value=Types.LONG())},
            ValueStateDescriptor("n", Types.STRING()),
            "state 'value/n' of operator 'u': declared",
        ),
        (
            {"value/n": stored(value=Types.LONG())},
            ListStateDescriptor("n", Types.LONG()),
            "it is 'value/n' in the savepoint",
        ),
        (
            {"map/m": stored(map_key=Types.STRING(), value=Types.LONG())},
            MapStateDescriptor("m", Types.STRING(), Types.INT()),
            "BIGINT",
        ),
        (
            {"value/old": stored(value=Types.LONG())},
            ValueStateDescriptor("n", Types.STRING()).renamed_from("old"),
            "state 'value/n' of operator 'u': declared",
        ),
        (
            {"value/old": stored(value=Types.INT())},
            ValueStateDescriptor("n", Types.LONG()).renamed_from("old"),
            None,
        ),
        (
            {"value/n": stored(value=Types.ROW_NAMED(["a"], [Types.STRING()]))},
            ValueStateDescriptor("n", Types.ROW_NAMED(["b"], [Types.LONG()])).renamed_fields({"b": "a"}),
            "field 'b'",
        ),
    ],
)
def test_problems(states, descriptor, says):
    found = list(problems_of("u", states, [descriptor]))
    if says is None:
        assert found == []
    else:
        assert len(found) == 1
        assert says in found[0]
