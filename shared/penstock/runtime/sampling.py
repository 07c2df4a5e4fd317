"""Samples what the data thread of a slot does: for each vertex a tree of frames, as flame graphs show it.

A thread looks at the data thread's stack every few milliseconds. A sample counts for the vertex whose task is in a
step at that moment; if no step runs, the sample counts for no vertex.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.messages.stack_samples import StackFrame
from penstock.runtime.task import Task

if TYPE_CHECKING:
    from types import FrameType

#: Bounds of one sampling, so that a request cannot hold a slot's thread for long.
MAX_SAMPLES, MIN_INTERVAL_MS = 500, 5
#: Deeper frames are left out. If a tree has more than MAX_FRAMES frames, the smallest are left out, too.
MAX_DEPTH, MAX_FRAMES = 100, 1_500
_STEP = Task._step.__code__
_NAME_CHARACTERS = 160


class Tree:
    """A frame of the tree while samples are counted."""

    __slots__ = ("children", "name", "off_cpu", "on_cpu")

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_cpu = self.off_cpu = 0
        self.children: dict[str, Tree] = {}

    def add(self, names: list[str], *, on_cpu: bool) -> None:
        """Count a sample whose frames, the outermost first, have these names."""
        node = self
        for name in [None, *names[:MAX_DEPTH]]:
            if name is not None:
                node = node.children.setdefault(name, Tree(name))
            if on_cpu:
                node.on_cpu += 1
            else:
                node.off_cpu += 1

    def frozen(self, least: int = 0) -> StackFrame:
        """The tree as a message, without frames of fewer than ``least`` samples."""
        kept = [c for c in self.children.values() if c.on_cpu + c.off_cpu >= least]
        children = tuple(c.frozen(least) for c in sorted(kept, key=lambda c: c.name))
        return StackFrame(name=self.name, on_cpu=self.on_cpu, off_cpu=self.off_cpu, children=children)

    def pruned(self) -> StackFrame:
        """The tree as a message with at most ``MAX_FRAMES`` frames."""
        sizes = sorted((n.on_cpu + n.off_cpu for n in self._all()), reverse=True)
        least = sizes[MAX_FRAMES] + 1 if len(sizes) > MAX_FRAMES else 0
        return self.frozen(least)

    def _all(self) -> list[Tree]:
        found = [self]
        for child in self.children.values():
            found += child._all()
        return found


def frame_name(frame: FrameType) -> str:
    """``function (file.py)``, the file by its last two parts."""
    code = frame.f_code
    place = "/".join(code.co_filename.split("/")[-2:])
    return f"{getattr(code, 'co_qualname', code.co_name)} ({place})"[:_NAME_CHARACTERS]


def in_step(frame: FrameType | None) -> tuple[str, list[str]] | None:
    """(vertex id, names of the frames above the step, the outermost first); None if no step runs."""
    names: list[str] = []
    while frame is not None:
        if frame.f_code is _STEP:
            task: Any = frame.f_locals.get("self")
            return None if task is None else (task.vertex.id, names[::-1])
        names.append(frame_name(frame))
        frame = frame.f_back
    return None


def sample(thread_ident: int, samples: int, interval_ms: int) -> tuple[int, dict[str, StackFrame]]:
    """(number of samples taken, vertex id → its tree). Takes ``samples * interval_ms``; to be called in a thread of
    its own. A sample is on the processor if the thread used it for half of the time since the sample before."""
    samples = min(max(1, samples), MAX_SAMPLES)
    interval_s = max(MIN_INTERVAL_MS, interval_ms) / 1000
    clock = time.pthread_getcpuclockid(thread_ident)
    trees: dict[str, Tree] = {}
    cpu_s, at_s = time.clock_gettime(clock), time.monotonic()
    for _ in range(samples):
        time.sleep(interval_s)
        found = in_step(sys._current_frames().get(thread_ident))
        before_cpu_s, before_s = cpu_s, at_s
        cpu_s, at_s = time.clock_gettime(clock), time.monotonic()
        if found is not None:
            vertex_id, names = found
            on_cpu = cpu_s - before_cpu_s >= (at_s - before_s) / 2
            trees.setdefault(vertex_id, Tree("root")).add(names, on_cpu=on_cpu)
    return samples, {vertex_id: tree.pruned() for vertex_id, tree in trees.items()}
