"""Samples of the data thread: trees of frames by vertex."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from penstock.messages.states import ExecutionState
from penstock.runtime.sampling import MAX_FRAMES, Tree, sample
from penstock.runtime.task import Task


def test_samples_with_the_same_frames_add_up() -> None:
    tree = Tree("root")
    tree.add(["step", "map"], on_cpu=True)
    tree.add(["step", "map"], on_cpu=False)
    tree.add(["step", "flush"], on_cpu=True)
    root = tree.pruned()
    [step] = root.children
    assert (root.on_cpu, root.off_cpu, step.on_cpu, step.off_cpu) == (2, 1, 2, 1)
    assert [(c.name, c.on_cpu, c.off_cpu) for c in step.children] == [("flush", 1, 0), ("map", 1, 1)]


def test_a_large_tree_loses_its_smallest_frames() -> None:
    tree = Tree("root")
    for i in range(MAX_FRAMES + 10):
        tree.add([f"rare{i}"], on_cpu=True)
    for _ in range(2):
        tree.add(["often"], on_cpu=True)
    assert [child.name for child in tree.pruned().children] == ["often"]


def rest(over: threading.Event) -> None:
    over.wait()


def sampled(work: object) -> dict[str, object]:
    over, known = threading.Event(), threading.Event()

    def time_s() -> float:
        known.set()
        work(over)  # type: ignore[operator]
        raise StopIteration

    task = SimpleNamespace(
        _scheduled=True, state=ExecutionState.RUNNING, _time_s=time_s, vertex=SimpleNamespace(id="v1")
    )

    def run() -> None:
        try:
            Task._step(task)  # type: ignore[arg-type]
        except StopIteration:
            pass

    thread = threading.Thread(target=run)
    thread.start()
    assert known.wait(60)
    try:
        taken, vertices = sample(thread.ident or 0, 20, 5)
    finally:
        over.set()
        thread.join()
    assert taken == 20
    return dict(vertices)


def test_the_frames_above_a_step_count_for_its_vertex() -> None:
    [(vertex, root)] = sampled(rest).items()
    assert vertex == "v1"
    names = []
    node = root
    while node.children:  # type: ignore[attr-defined]
        node = node.children[0]  # type: ignore[attr-defined]
        names.append(node.name.split(" ")[0])
    assert names[1] == "rest"
    assert root.off_cpu == 20  # type: ignore[attr-defined]


def test_a_thread_outside_of_steps_counts_for_nobody() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert sample(thread.ident or 0, 3, 5) == (3, {})
    finally:
        over.set()
        thread.join()
