"""What is told of Spark, from what its status API says."""

from __future__ import annotations

from typing import Any

from penstock.spark.progress import progress


def stage(number: int, status: str, tasks: int, done: int, **more: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(
        ("numActiveTasks", "numFailedTasks", "inputRecords", "inputBytes", "shuffleWriteBytes"), 0
    )
    return {
        **zeros,
        "stageId": number,
        "attemptId": 0,
        "name": f"stage {number}",
        "status": status,
        "numTasks": tasks,
        "numCompleteTasks": done,
        "diskBytesSpilled": 0,
        "executorRunTime": 7,
        **more,
    }


JOBS = [
    {"jobId": 1, "jobTags": ["SparkConnect_User__Session_mine_Operation_x"], "stageIds": [3, 4, 5]},
    {"jobId": 2, "jobTags": ["SparkConnect_User__Session_other_Operation_y"], "stageIds": [6]},
]
STAGES = [
    stage(6, "ACTIVE", 9, 1),
    stage(5, "ACTIVE", 4, 1, numActiveTasks=2, numFailedTasks=1, name="Spark Connect - session_id …"),
    stage(4, "SKIPPED", 8, 0),
    stage(
        3,
        "COMPLETE",
        2,
        2,
        inputRecords=10,
        inputBytes=80,
        shuffleWriteBytes=40,
        firstTaskLaunchedTime="1970-01-01T00:00:02.500GMT",
    ),
]


def test_only_the_sessions_own_stages_count_and_skipped_ones_do_not():
    told = progress(JOBS, STAGES, "_Session_mine_")
    assert (told.stages, told.stages_completed) == (2, 1)
    assert (told.tasks, told.tasks_completed, told.tasks_active, told.tasks_failed) == (6, 3, 2, 1)
    assert (told.rows_read, told.bytes_read, told.shuffle_bytes) == (10, 80, 40)
    assert [(s.id, s.status) for s in told.details] == [(5, "ACTIVE"), (3, "COMPLETE")]
    assert [s.begun_ms for s in told.details] == [0, 2500]
    assert [s.name for s in told.details] == ["", "stage 3"], "the text of a plan names nothing"


def test_without_a_tag_all_of_the_application_counts():
    assert progress(JOBS, STAGES).tasks == 15
