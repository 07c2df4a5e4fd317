"""Flame graphs: where the time of a vertex's code goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.dispatcher.views.common import Camel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.stack_samples import StackFrame

#: In place of the time of a flame graph whose vertex has ended.
ENDED = -1
#: Which samples count: all, those on the processor, those that waited.
FULL, ON_CPU, OFF_CPU = "full", "on_cpu", "off_cpu"


class FlameFrame(Camel, frozen=True, kw_only=True):
    """A function. ``value``: samples in which it was on the stack."""

    name: str
    value: int
    children: list[FlameFrame]


class FlameGraph(Camel, frozen=True, kw_only=True):
    """``GET …/flamegraph``. ``endTimestamp``: when the samples were taken, in ms; -1: the vertex has ended."""

    end_timestamp: int
    data: FlameFrame | None = None


def merged(frames: Iterable[StackFrame], kind: str, name: str = "root") -> FlameFrame:
    """The sum of several trees. ``kind``: ``FULL``, ``ON_CPU`` or ``OFF_CPU``."""
    found = list(frames)
    on_cpu = sum(f.on_cpu for f in found) if kind != OFF_CPU else 0
    off_cpu = sum(f.off_cpu for f in found) if kind != ON_CPU else 0
    by_name: dict[str, list[StackFrame]] = {}
    for frame in found:
        for child in frame.children:
            by_name.setdefault(child.name, []).append(child)
    children = [merged(same, kind, child) for child, same in sorted(by_name.items())]
    return FlameFrame(name=name, value=on_cpu + off_cpu, children=[c for c in children if c.value])
