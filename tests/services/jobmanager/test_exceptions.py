"""What the loss of a slot says of the job."""

from __future__ import annotations

import pytest

from penstock.errors import (
    BrokerError,
    FunctionError,
    InternalError,
    PenstockError,
    SlotLostError,
    SpecError,
    error_from_dict,
)
from penstock.messages.slot import ErrorInfo
from penstock_services.jobmanager.exceptions import ExceptionHistory, describe, in_a_line, loss
from penstock_services.jobmanager.restart import FailureHandler, GiveUp, Restart


@pytest.mark.parametrize(
    ("exit_code", "accident"), [(None, True), (0, True), (-9, True), (-15, True), (3, False), (-11, False)]
)
def test_an_accident_or_the_jobs_own_code(exit_code: int | None, accident: bool) -> None:
    error = loss("process 7 ended", exit_code, task="Map (1/1)", where="task manager a")
    assert bool(error.get("lost")) is accident
    known = error_from_dict(error)
    assert isinstance(known, SlotLostError if accident else FunctionError)
    assert known.retryable
    assert known.domain == ("external" if accident else "user"), "no mistake of ours"
    if not accident:
        assert "Map (1/1)" in (known.where or "")
        assert "os._exit" in (known.remedy or "")


def test_code_that_ends_its_process_again_and_again_fails_the_job() -> None:
    handler = FailureHandler({})
    decisions = [
        handler.decide(loss(f"process {pid}", 3, task="Map (1/1)", where="a"), 0, pid * 1_000)
        for pid in (1, 2, 3)
    ]
    assert [type(d) for d in decisions] == [Restart, Restart, GiveUp]


def test_it_fails_also_when_a_broken_connection_is_heard_of_first() -> None:
    handler = FailureHandler({})
    symptom = {"type": "BrokerError", "message": "connection to slot lost"}
    for attempt in range(3):
        symptom["where"] = f"channel {attempt}"  # whichever noticed it
        assert isinstance(handler.decide(symptom, 0, attempt * 1_000), Restart)
        ended = loss("process 1", 3, task=f"Map ({attempt}/2)", where="a")
        given_up = handler.cause(ended, 0)
        assert (given_up is not None) == (attempt == 2)
    explicit = FailureHandler({"restart-strategy.type": "exponential-delay"})
    assert [explicit.cause(loss("p", 3, task="Map", where="a"), 0) for _ in range(5)] == [None] * 5


def test_the_first_loss_stays_the_root_and_takes_the_place_of_a_broken_connection() -> None:
    losses = [loss("task manager is lost", None, task="Map", where=where) for where in ("a", "b")]
    history = ExceptionHistory()
    history.add(ErrorInfo(error=BrokerError("connection to a lost").to_dict()), 1, job_attempt=1)
    for error in losses:
        history.add_cause(ErrorInfo(error=error), 2, job_attempt=1)
    (root,) = history.all()
    assert root["error"] == losses[0]
    assert [e["error"]["code"] for e in root["concurrent"]] == ["PS-BROKER", "PS-SLOT-LOST"]


def test_accidents_are_restarted_from() -> None:
    handler = FailureHandler({})
    for pid in range(20):
        lost = loss("process 1 ended with signal SIGKILL", -9, task="Map (1/1)", where="a")
        assert isinstance(handler.decide(lost, 0, pid * 1_000), Restart)


USERS = 'Traceback (most recent call last):\n  File "/app/job.py", line 3, in picky\nValueError: no threes'
OURS = 'Traceback (most recent call last):\n  File "/lib/penstock/runtime/task.py", line 9, in step\nX: y'


@pytest.mark.parametrize(
    ("error", "traceback", "first"),
    [
        (FunctionError("raised", remedy="correct it", user_traceback=USERS), f"{USERS}\n\n{OURS}", USERS),
        (SpecError("no such folder", remedy="correct it"), OURS, "[PS-SPEC] no such folder"),
        (InternalError("KeyError: 'a'", remedy="correct it"), OURS, OURS),
    ],
)
def test_a_failure_ends_with_what_to_do_and_the_log_has_our_frames(
    error: PenstockError, traceback: str, first: str
) -> None:
    info = ErrorInfo(error=error.to_dict(), traceback=traceback, operator="sum")
    text = describe(info)
    assert text.startswith(first)
    assert text.endswith("  do:       correct it\n  operator: sum")
    assert (OURS in text) == isinstance(error, InternalError)
    assert in_a_line(info)["traceback"] == OURS


def test_without_frames_of_ours_there_are_none_to_tell() -> None:
    info = ErrorInfo(error=FunctionError("raised", user_traceback=USERS).to_dict(), traceback=USERS)
    assert "traceback" not in in_a_line(info)
    assert describe(info) == f"{USERS}\n[PS-FUNCTION] raised"
