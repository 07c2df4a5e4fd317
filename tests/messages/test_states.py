"""The diagrams in the docstring and the tables in code say the same."""

import itertools
import re

import pytest

from penstock.messages import states
from penstock.messages.states import EXECUTION_TRANSITIONS, JOB_TRANSITIONS, ExecutionState, JobStatus

DOC = states.__doc__


@pytest.mark.parametrize("enum_", [JobStatus, ExecutionState])
def test_every_state_is_in_the_diagram(enum_: type) -> None:
    for state in enum_:
        assert re.search(rf"\b{state.value}\b", DOC), state


@pytest.mark.parametrize("table", [JOB_TRANSITIONS, EXECUTION_TRANSITIONS])
def test_terminal_states_lead_nowhere_and_all_others_somewhere(table: dict) -> None:
    for state, following in table.items():
        assert bool(following) != state.terminal, state


def arrows(line: str, kind: type) -> list[tuple]:
    names = re.findall(r"[A-Z]{4,}", line)
    return [(kind(a), kind(b)) for a, b in itertools.pairwise(names)]


def test_the_main_lines_of_the_diagrams_are_allowed() -> None:
    main_job, main_execution = (line for line in DOC.splitlines() if "RUNNING → FINISHED" in line)
    for a, b in arrows(main_job, JobStatus):
        assert b in JOB_TRANSITIONS[a], (a, b)
    for a, b in arrows(main_execution, ExecutionState):
        assert b in EXECUTION_TRANSITIONS[a], (a, b)


def test_any_running_execution_can_fail_or_be_cancelled() -> None:
    for state in ExecutionState:
        if not state.terminal and state is not ExecutionState.CANCELING:
            assert {ExecutionState.CANCELING, ExecutionState.FAILED} <= EXECUTION_TRANSITIONS[state]


def test_suspended_is_only_locally_terminal() -> None:
    assert JobStatus.SUSPENDED.terminal
    assert not JobStatus.SUSPENDED.globally_terminal
