"""Reports the progress of a job's queries on Spark.

A Spark that we start has a status API (HTTP, on this machine) with stages, failed tasks and sizes. A Spark
Connect server elsewhere reports only what the Connect protocol contains.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from penstock.log_events import EventLog
from penstock.messages.spark import Progress, Stage
from penstock.spark.session import is_connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    Tell = Callable[[Progress], None]

_log = EventLog("penstock.spark.progress")
_ASK_S = 0.5
_ANSWER_S = 20.0
#: After the end of the queries: seconds between questions, and how long at most Spark is asked until its
#: status shows the end.
_LAG_S, _SETTLED_S = 0.05, 5.0
#: A stage's name is the beginning of its query, cut to this length.
_NAME_CHARS = 120
#: The most stages reported in detail, the newest first. The totals count all stages.
_DETAILS = 100


@contextlib.contextmanager
def watched(session: SparkSession, tell: Tell, ui: str = "") -> Iterator[None]:
    """Reports stages and tasks of this session's queries while the block runs. ``ui``: the URL of the status
    API of a Connect server; empty if it has none that can be asked."""
    tell(Progress(stage="running"))
    watch: AbstractContextManager[None]
    if is_connect(session):
        tag = f"_Session_{session.session_id}_"  # type: ignore[attr-defined]
        watch = _asked(ui, tag, tell) if ui else _connect(session, tell)
    else:
        url = session.sparkContext.uiWebUrl
        watch = _asked(url, "", tell) if url else contextlib.nullcontext()
    with watch:
        yield


@contextlib.contextmanager
def _connect(session: Any, tell: Tell) -> Iterator[None]:
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
def _asked(url: str, tag: str, tell: Tell) -> Iterator[None]:
    """Asks the status API periodically while the block runs. After the block, asks until the status shows
    that all jobs have ended, because the status lags behind."""
    ended, done = threading.Event(), False

    def ask() -> None:
        last = warned = settled = False
        latest = float("inf")
        while not (last and (settled or not done or time.monotonic() > latest)):
            if last:
                time.sleep(_LAG_S)
            elif ended.wait(_ASK_S):
                last, latest = True, time.monotonic() + _SETTLED_S
            try:
                jobs, stages = _jobs_and_stages(url)
                tell(progress(jobs, stages, tag))
                settled = not any(_is_of(job, tag) and job["status"] == "RUNNING" for job in jobs)
            except (OSError, LookupError, ValueError) as err:  # The job does not depend on its progress.
                settled = True
                if not warned:
                    _log.warning("spark_status_not_read", url=url, error=repr(err))
                warned = True

    thread = threading.Thread(target=ask, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
        done = True
    finally:
        ended.set()
        thread.join()


def _is_of(job: Mapping[str, Any], tag: str) -> bool:
    return not tag or any(tag in t for t in job["jobTags"])


def _jobs_and_stages(url: str) -> tuple[Any, Any]:
    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{url}/api/v1/applications{path}", timeout=_ANSWER_S) as answer:
            return json.load(answer)

    application = get("")[0]["id"]
    return get(f"/{application}/jobs"), get(f"/{application}/stages")


def progress(
    jobs: Iterable[Mapping[str, Any]], stages: Iterable[Mapping[str, Any]], tag: str = ""
) -> Progress:
    """The progress that the jobs and stages of Spark's status API show.

    ``tag``: only jobs with a tag that contains it. Skipped stages (their output existed already) do not count.
    """
    mine = {stage for job in jobs if _is_of(job, tag) for stage in job["stageIds"]}
    found = [_stage(s) for s in stages if s["stageId"] in mine and s["status"] != "SKIPPED"]
    found.sort(key=lambda s: (-s.id, -s.attempt))
    return Progress(
        stage="running",
        stages=len(found),
        stages_completed=sum(s.status == "COMPLETE" for s in found),
        tasks=sum(s.tasks for s in found),
        tasks_completed=sum(s.completed for s in found),
        tasks_active=sum(s.active for s in found),
        tasks_failed=sum(s.failed for s in found),
        bytes_read=sum(s.input_bytes for s in found),
        rows_read=sum(s.input_rows for s in found),
        shuffle_bytes=sum(s.shuffle_bytes for s in found),
        spilled_bytes=sum(s.spilled_bytes for s in found),
        details=tuple(found[:_DETAILS]),
    )


def _stage(told: Mapping[str, Any]) -> Stage:
    name = told["name"] if not told["name"].startswith("Spark Connect - ") else ""
    return Stage(
        id=told["stageId"],
        attempt=told["attemptId"],
        name=name[:_NAME_CHARS],
        status=told["status"],
        tasks=told["numTasks"],
        completed=told["numCompleteTasks"],
        active=told["numActiveTasks"],
        failed=told["numFailedTasks"],
        input_rows=told["inputRecords"],
        input_bytes=told["inputBytes"],
        shuffle_bytes=told["shuffleWriteBytes"],
        spilled_bytes=told["diskBytesSpilled"],
        run_ms=told["executorRunTime"],
        begun_ms=_epoch_ms(told.get("firstTaskLaunchedTime")),
    )


def _epoch_ms(text: str | None) -> int:
    """ms since the epoch of a time of the status API: 2026-11-21T06:47:35.259GMT."""
    if text is None:
        return 0
    when = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=datetime.UTC)
    return round(when.timestamp() * 1000)
