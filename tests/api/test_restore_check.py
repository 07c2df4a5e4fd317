"""Declared states against those of a savepoint."""

from __future__ import annotations

import msgspec
import pytest

from penstock.api import ListStateDescriptor, MapStateDescriptor, Types, ValueStateDescriptor
from penstock.api.restore_check import compared, declared_by, problems_of


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
    declared = declared_by(function, {})
    assert [d.state_name for d in declared.descriptors] == ["value/n", "list/l"]
    assert declared.complete == (kind is Asks)
    assert not hasattr(function, "state"), "a copy was opened"
    assert declared_by(len, {}).descriptors == []


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
        assert found[0][0] in states
        assert says in found[0][1]


STORED = {
    "value/count": stored(value=Types.LONG()),
    "map/pads": stored(map_key=Types.STRING(), value=Types.LONG()),
    "timer/event": {},
}


@pytest.mark.parametrize(
    ("descriptors", "unread", "new", "unreadable"),
    [
        (["count", "pads"], (), (), ()),
        (["count", "padsx"], ("map/pads",), ("map/padsx",), ()),
        (["count", "padsx from pads"], (), (), ()),
        (["count as STRING", "pads"], (), (), ("value/count",)),
        (["count as list", "pads"], (), (), ("value/count",)),
    ],
)
def test_states_are_compared_one_by_one(descriptors, unread, new, unreadable):
    known = {
        "count": ValueStateDescriptor("count", Types.LONG()),
        "count as STRING": ValueStateDescriptor("count", Types.STRING()),
        "count as list": ListStateDescriptor("count", Types.LONG()),
        "pads": MapStateDescriptor("pads", Types.STRING(), Types.LONG()),
        "padsx": MapStateDescriptor("padsx", Types.STRING(), Types.LONG()),
        "padsx from pads": MapStateDescriptor("padsx", Types.STRING(), Types.LONG()).renamed_from("pads"),
    }
    found = compared("u", STORED, declared_by(Asks(*[known[name] for name in descriptors]), {}))
    assert found.known
    assert (found.unread, found.new, found.unreadable) == (unread, new, unreadable)
    assert len(found.problems) == len(unreadable)
    assert not compared("u", STORED, declared_by(NeedsMore(), {})).known
