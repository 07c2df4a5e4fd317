"""Log lines of a slot on their way to a task manager that may not read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.runtime.slot import MAX_LOG_CHARACTERS, MAX_UNREAD_BYTES, Slot


def test_lines_for_a_task_manager_that_does_not_read_stay_in_the_slots_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent: list[str] = []
    control = SimpleNamespace(unread_bytes=0, send=lambda message: sent.append(message.text))
    slot = Slot(control, None, "a", Path("none"))  # type: ignore[arg-type]
    slot.log("warning", "first")
    slot.log("warning", "x" * 100_000)
    control.unread_bytes = MAX_UNREAD_BYTES + 1
    slot.log("error", "second")
    control.unread_bytes = 0
    slot.log("warning", "third")
    assert sent == ["first", "x" * MAX_LOG_CHARACTERS, "third"]
    assert capsys.readouterr().err.splitlines() == [
        "warning: first", f"warning: {'x' * 100_000}", "error: second", "warning: third"
    ]  # fmt: skip
