"""Flame graphs: trees of several slots are added up."""

from __future__ import annotations

import pytest

from penstock.messages.stack_samples import StackFrame
from penstock_services.dispatcher.views.flame import FULL, OFF_CPU, ON_CPU, merged

ONE = StackFrame(name="root", on_cpu=3, children=(StackFrame(name="map", on_cpu=3),))
OTHER = StackFrame(
    name="root",
    on_cpu=1,
    off_cpu=4,
    children=(StackFrame(name="flush", off_cpu=4), StackFrame(name="map", on_cpu=1)),
)


@pytest.mark.parametrize(
    ("kind", "value", "children"),
    [
        (FULL, 8, [("flush", 4), ("map", 4)]),
        (ON_CPU, 4, [("map", 4)]),
        (OFF_CPU, 4, [("flush", 4)]),
    ],
)
def test_merged(kind: str, value: int, children: list[tuple[str, int]]) -> None:
    found = merged([ONE, OTHER], kind)
    assert (found.name, found.value) == ("root", value)
    assert [(c.name, c.value) for c in found.children] == children


def test_nothing_sampled_is_an_empty_root() -> None:
    assert merged([], FULL).value == 0
