"""What is told of Spark, from what its status API says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.messages.spark import Progress
from penstock.spark.progress import progress, watched


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


class Lagging(BaseHTTPRequestHandler):
    """A status API that says that a job runs until it was asked four times for jobs."""

    asked = 0

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        if self.path.endswith("/jobs"):
            type(self).asked += 1
        over = self.asked > 3
        status = "SUCCEEDED" if over else "RUNNING"
        answers: dict[str, Any] = {
            "applications": [{"id": "app"}],
            "jobs": [{**JOBS[0], "stageIds": [3], "status": status}, {**JOBS[1], "status": "RUNNING"}],
            "stages": [stage(3, "COMPLETE" if over else "ACTIVE", 2, 2 if over else 1, inputRecords=10)],
        }
        data = json.dumps(answers[self.path.rpartition("/")[2]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def ui() -> Iterator[str]:
    Lagging.asked = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Lagging) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_last_word_is_waited_for_after_a_success_alone(ui: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.spark.progress.is_connect", lambda _: True)
    session: Any = SimpleNamespace(session_id="mine")
    told: list[Progress] = []
    with pytest.raises(KeyboardInterrupt), watched(session, told.append, ui):
        raise KeyboardInterrupt
    assert Lagging.asked == 1
    assert told[-1].tasks_completed == 1
    with watched(session, told.append, ui):
        pass
    assert Lagging.asked == 4
    assert (told[-1].tasks, told[-1].tasks_completed) == (2, 2)
    assert [s.status for s in told[-1].details] == ["COMPLETE"]
