"""What Spark runs now, for whoever watches the job."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from penstock.messages.spark import Progress
from penstock.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

_ASK_S = 0.5


@contextlib.contextmanager
def watched(session: SparkSession, tell: Callable[[Progress], None]) -> Iterator[None]:
    """Tell about stages and tasks of this session's queries while the block runs."""
    tell(Progress(stage="running"))
    if is_connect(session):
        with _connect(session, tell):
            yield
    else:
        with _classic(session, tell):
            yield


@contextlib.contextmanager
def _connect(session: Any, tell: Callable[[Progress], None]) -> Iterator[None]:
    def on_progress(stages: Any, inflight_tasks: int, operation_id: str, done: bool) -> None:
        tell(
            Progress(
                stage="running",
                stages=len(stages),
                stages_completed=sum(x.num_completed_tasks >= x.num_tasks for x in stages),
                tasks=sum(x.num_tasks for x in stages),
                tasks_completed=sum(x.num_completed_tasks for x in stages),
                tasks_active=inflight_tasks,
                bytes_read=sum(x.num_bytes_read for x in stages),
            )
        )

    session.registerProgressHandler(on_progress)
    try:
        yield
    finally:
        session.removeProgressHandler(on_progress)


@contextlib.contextmanager
def _classic(session: Any, tell: Callable[[Progress], None]) -> Iterator[None]:
    """The status tracker of the Spark that this process drives, asked now and then."""
    tracker, stop = session.sparkContext.statusTracker(), threading.Event()
    seen: dict[int, tuple[int, int]] = {}

    def ask() -> None:
        while not stop.wait(_ASK_S):
            active = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = info.numTasks, info.numCompletedTasks
                    active += info.numActiveTasks
            tell(
                Progress(
                    stage="running",
                    stages=len(seen),
                    stages_completed=sum(done >= tasks for tasks, done in seen.values()),
                    tasks=sum(tasks for tasks, _ in seen.values()),
                    tasks_completed=sum(done for _, done in seen.values()),
                    tasks_active=active,
                )
            )

    thread = threading.Thread(target=ask, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
