"""Samples of what a slot's data thread does, asked for by the task manager. They go no further than to it."""

from __future__ import annotations

import msgspec


class SampleStacks(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sample-stacks"):
    """Look ``samples`` times, ``interval_ms`` apart, at what the data thread does. The reply is
    ``StacksSampled``."""

    request_id: str
    samples: int
    interval_ms: int


class StackFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A function on the stack, with those that it called. ``on_cpu`` and ``off_cpu``: samples in which it was on
    the stack while the thread used the processor, or waited."""

    name: str
    on_cpu: int = 0
    off_cpu: int = 0
    children: tuple[StackFrame, ...] = ()


class StacksSampled(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stacks-sampled"):
    """The answer to ``SampleStacks``. ``samples``: those taken; ``vertices``: vertex id → a root whose children
    are the frames of its steps. A vertex that ran in no sample is left out."""

    request_id: str
    samples: int
    vertices: dict[str, StackFrame] = {}
