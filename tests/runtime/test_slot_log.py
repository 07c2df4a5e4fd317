"""Log lines of a slot on their way to a task manager that may not read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from penstock.runtime.slot_reports import MAX_LOG_CHARACTERS, MAX_UNREAD_BYTES, SlotReports


def test_lines_for_a_task_manager_that_does_not_read_stay_in_the_slots_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent: list[tuple[str, str]] = []
    control = SimpleNamespace(
        unread_bytes=0, send=lambda message: sent.append((message.event, message.fields["error"]))
    )
    slot = SlotReports(control, lambda: None)  # type: ignore[arg-type]
    slot.log("warning", "first", error="one")
    slot.log("warning", "long", error="x" * 100_000)
    control.unread_bytes = MAX_UNREAD_BYTES + 1
    slot.log("error", "second", error="nats://me:secret@host is gone")
    control.unread_bytes = 0
    slot.log("warning", "third", error=3)
    assert sent == [("first", "one"), ("long", "x" * MAX_LOG_CHARACTERS), ("third", "3")]
    assert capsys.readouterr().err.splitlines() == [
        "warning: first error=one",
        f"warning: long error={'x' * 100_000}",
        'error: second error="nats://******@host is gone"',
        "warning: third error=3",
    ]  # fmt: skip
