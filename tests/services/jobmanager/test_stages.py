"""The stages of a job master: the diagram and the table say the same, and only the core moves a job."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

from penstock.errors import InternalError
from penstock_services.jobmanager import stages
from penstock_services.jobmanager.stages import CLAIMING, STAGE_TRANSITIONS, Stage, Step
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster

DOC = stages.__doc__ or ""


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_is_in_the_diagram_and_in_the_table(stage: Stage) -> None:
    assert re.search(rf"\b{stage.name}\b", DOC)
    assert stage in STAGE_TRANSITIONS


def test_the_main_line_of_the_diagram_is_allowed() -> None:
    [line] = [line for line in DOC.splitlines() if line.strip().startswith("RESTORING ─→")]
    for a, b in itertools.pairwise(re.findall(r"[A-Z_]{4,}", line)):
        assert Stage[b] in STAGE_TRANSITIONS[Stage[a]], (a, b)


def test_only_gone_leads_nowhere_and_every_other_stage_leads_there() -> None:
    for stage, following in STAGE_TRANSITIONS.items():
        assert bool(following) != (stage is Stage.GONE)
        assert stage is Stage.GONE or Stage.GONE in following


def test_every_stage_is_reached_from_the_first() -> None:
    reached, waiting = {Stage.RESTORING}, [Stage.RESTORING]
    while waiting:
        new = STAGE_TRANSITIONS[waiting.pop()] - reached
        reached |= new
        waiting += new
    assert reached == set(Stage)


def test_a_job_can_be_stopped_until_it_ends() -> None:
    ending = {Stage.STOPPING, Stage.CLOSING, Stage.ARCHIVING, Stage.GONE}
    assert {stage for stage in Stage if Stage.STOPPING not in STAGE_TRANSITIONS[stage]} == ending


def test_a_failure_backs_off_wherever_slots_are_claimed() -> None:
    leads_there = {stage for stage in Stage if Stage.BACKING_OFF in STAGE_TRANSITIONS[stage]}
    assert leads_there == set(CLAIMING) - {Stage.BACKING_OFF}


def test_a_stage_that_cannot_follow_is_refused() -> None:
    core = Cluster(pipeline(), 1).core
    assert core.stage is Stage.WAITING
    with pytest.raises(InternalError, match="no such transition of a job master") as caught:
        core.enter(Step(stage=Stage.ARCHIVING))
    assert caught.value.got == "waiting for slots → archiving"
    assert core.enter(Step()) == []
    assert core.stage is Stage.WAITING


def test_no_part_of_the_core_assigns_the_stage() -> None:
    found = []
    for file in Path(stages.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "stage" and isinstance(node.ctx, ast.Store):
                found.append(file.name)
    # where it begins, and where ``enter`` moves it
    assert found == ["job_state.py", "job_state.py"]
