"""docs/logs.md lists every event that the code logs, with its level and its fields; names are stable."""

from __future__ import annotations

import ast
import functools
import logging
import re
from pathlib import Path

import pytest

from penstock.log_events import EventLog, LogEvent

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "logs.md"
METHODS = {"debug", "info", "warning", "error", "exception"}
LOGGERS = {"log", "_log", "logger", "_logger"}
#: Calls that take the level first: ``self.log("warning", "slot_failed", …)``, ``fx.Say("info", …)``.
BY_LEVEL = {"log", "_log", "say", "Say"}
#: The one place that passes on what it was given: an event of a slot.
PASSED_ON = {"services/taskmanager/running.py", "services/jobmanager/job_state.py"}

Events = dict[str, tuple[set[str], set[str]]]


def logged(tree: ast.AST, path: str) -> Events:
    """event → (levels, fields that the call names)"""
    found: Events = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if (call := _event_of(node)) is None:
            continue
        level, name = call
        if not isinstance(name, ast.Constant):
            assert path in PASSED_ON, f"{path}:{node.lineno}: the event's name is no constant"
            continue
        levels, fields = found.setdefault(name.value, (set(), set()))
        levels.add("error" if level == "exception" else level)
        fields |= {k.arg for k in node.keywords if k.arg not in (None, "exc_info")}
    return found


def _event_of(node: ast.Call) -> tuple[str, ast.expr] | None:
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    called = _name(node.func)
    if called in METHODS and owner is not None and _name(owner) in LOGGERS and node.args:
        return called, node.args[0]
    levels = METHODS if called in BY_LEVEL and len(node.args) > 1 else ()
    first = node.args[0] if levels else None
    if isinstance(first, ast.Constant) and first.value in levels:
        return first.value, node.args[1]
    return None


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def of_the_code() -> Events:
    every: Events = {}
    for folder in ("services", "shared/penstock"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            if path.startswith("shared/penstock/testing"):
                continue
            for event, (levels, fields) in logged(ast.parse(file.read_text()), path).items():
                known = every.setdefault(event, (set(), set()))
                known[0].update(levels)
                known[1].update(fields)
    return every


def of_the_page() -> Events:
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|([^|\n]*)\|", PAGE.read_text(), re.MULTILINE)
    assert len({event for event, *_ in rows}) == len(rows), "an event has one row"
    return {
        event: (set(levels.split(", ")), set(re.findall(r"`(\w+)`", fields)))
        for event, levels, fields in rows
    }


def test_the_page_lists_what_the_code_logs() -> None:
    code, page = of_the_code(), of_the_page()
    assert len(code) > 60
    assert sorted(page) == sorted(code)
    for event, (levels, fields) in code.items():
        assert page[event][0] == levels, event
        assert fields <= page[event][1], event


def test_names_are_words_joined_by_underscores() -> None:
    assert not [event for event in of_the_code() if not re.fullmatch(r"[a-z]+(_[a-z]+)+", event)]


def test_a_sentence_is_no_event() -> None:
    tree = ast.parse('log.info("the slot is gone", slot=1)\nself._log("warning", "slot_gone", slot=1)')
    assert set(logged(tree, "x.py")) == {"the slot is gone", "slot_gone"}
    with pytest.raises(AssertionError, match="no constant"):
        logged(ast.parse('_log.info(f"slot {n} is gone")'), "x.py")


def test_a_line_can_be_taken_apart(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="penstock.test"):
        EventLog("penstock.test").warning(
            "lease_lost", lease="a", reason='the "store"\nis away', n=3, none=""
        )
    [record] = caplog.records
    assert record.getMessage() == 'lease_lost lease=a reason="the \\"store\\"\\nis away" n=3 none=""'
    assert isinstance(record.msg, LogEvent)
    assert record.msg.fields["n"] == 3
    assert record.funcName == "test_a_line_can_be_taken_apart"
