"""Logs of task managers over REST; the task manager is the test's, its files are real."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.bus import serve_typed
from penstock.messages import cluster as msg
from penstock_services.taskmanager.log_files import MAX_PIECE_BYTES, log_files, log_piece


@pytest.fixture
async def manager(front, tmp_path: Path):
    """(the dispatcher, the log folder of tm1, sizes of the pieces that were fetched)"""
    pieces: list[int] = []

    async def serve(message):
        if isinstance(message, msg.RequestLogFiles):
            return msg.LogFiles(files=tuple(log_files(tmp_path)))
        piece = log_piece(tmp_path, message.name, message.offset, message.limit)
        pieces.append(len(piece.data))
        return piece

    await serve_typed(front.bus.transport(), front.subjects.taskmanager_all("tm1"), msg.ToTaskManager, serve)
    return front, tmp_path, pieces


async def test_files_are_listed_as_flink_lists_them(manager) -> None:
    front, folder, _ = manager
    (folder / "taskmanager.log").write_text("event=ready\n")
    reply = await front.http.get("/taskmanagers/tm1/logs")
    mtime = (folder / "taskmanager.log").stat().st_mtime_ns // 10**6
    assert reply.json() == {"logs": [{"name": "taskmanager.log", "size": 12, "mtime": mtime}]}
    assert (await front.http.get("/v1/taskmanagers/tm1/log")).text == "event=ready\n"


async def test_stdout_is_what_the_slots_print_in_bounded_pieces(manager) -> None:
    front, folder, pieces = manager
    rows = "".join(f"+I[{n}, ü]\n" for n in range(60_000))
    (folder / "j.a-1.log").write_text(rows)
    (folder / "j.a-1.1.log").write_text("the end\n")
    (folder / "taskmanager.log").write_text("event=ready\n")
    reply = await front.http.get("/taskmanagers/tm1/stdout")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.text == rows + "the end\n"
    assert len(pieces) > 2
    assert max(pieces) == MAX_PIECE_BYTES


async def test_a_file_is_read_from_where_the_reader_is(manager) -> None:
    front, folder, _ = manager
    (folder / "j.a-1.log").write_text("one\ntwo\n")
    assert (await front.http.get("/taskmanagers/tm1/logs/j.a-1.log?offset=4")).text == "two\n"
    assert (await front.http.get("/taskmanagers/tm1/logs/j.a-1.log?offset=8")).text == ""
    refused = await front.http.get("/taskmanagers/tm1/logs/j.a-1.log?offset=x")
    assert (refused.status_code, "whole number" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/taskmanagers/tm1/logs/none.log", 404, "has no log file 'none.log'"),
        ("/taskmanagers/tm1/logs/..%2Fsecret", 404, ""),
        ("/taskmanagers/tm1/log", 404, "has no log file 'taskmanager.log'"),
        ("/taskmanagers/tm2/log", 404, "there is no task manager 'tm2'"),
        ("/taskmanagers/tm2/stdout", 404, "tm1"),
        ("/taskmanagers/a.b/logs", 400, "not a task manager id"),
    ],
)
async def test_what_is_not_there_is_named(manager, path: str, status: int, said: str) -> None:
    front, _, _ = manager
    reply = await front.http.get(path)
    assert (reply.status_code, said in reply.text) == (status, True), reply.text


async def test_a_task_manager_that_prints_nothing_has_an_empty_stdout(manager) -> None:
    front, _, _ = manager
    reply = await front.http.get("/taskmanagers/tm1/stdout")
    assert (reply.status_code, reply.text) == (200, "")


async def test_one_that_does_not_answer_is_no_unknown_one(front) -> None:
    reply = await front.http.get("/taskmanagers/tm1/stdout")
    assert reply.status_code == 503
