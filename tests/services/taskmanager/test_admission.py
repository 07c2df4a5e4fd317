"""Who may use a slot: tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock_services.taskmanager.admission import admit, deployed_since, fenced
from penstock_services.taskmanager.slots import Admission, Slot, SlotState


def deploy(attempt: int, epoch: int = 1) -> Any:
    return SimpleNamespace(job_attempt=attempt, epoch=epoch)


@pytest.mark.parametrize(
    ("slot", "attempt", "epoch", "admission"),
    [
        (None, 1, 1, Admission.REFUSE),
        (Slot(0, SlotState.ACTIVE, "other", deploy=deploy(1)), 1, 1, Admission.REFUSE),
        (Slot(0, SlotState.ALLOCATED, "job"), 1, 1, Admission.WAIT),
        (Slot(0, SlotState.FORKING, "job", deploy=deploy(1)), 1, 1, Admission.WAIT),
        (Slot(0, SlotState.ACTIVE, "job", deploy=deploy(1)), 1, 1, Admission.PASS),
        (Slot(0, SlotState.ACTIVE, "job", deploy=deploy(1)), 2, 1, Admission.WAIT),
        (Slot(0, SlotState.ACTIVE, "job", deploy=deploy(2)), 1, 1, Admission.REFUSE),
        (Slot(0, SlotState.ACTIVE, "job", deploy=deploy(1, epoch=2)), 1, 1, Admission.REFUSE),
        (Slot(0, SlotState.ENDING, "job", deploy=deploy(1), next=deploy(2)), 2, 1, Admission.WAIT),
    ],
)
def test_a_data_connection(slot: Slot | None, attempt: int, epoch: int, admission: Admission) -> None:
    preface = {"target_allocation": "a", "job_id": "job", "job_attempt": attempt, "epoch": epoch}
    found, reason = admit(slot, preface)
    assert found is admission
    assert bool(reason) == (admission is not Admission.PASS)


@pytest.mark.parametrize(
    ("planned", "offered", "since"),
    [
        (None, None, False),
        (deploy(1), None, True),
        (deploy(2), deploy(2), False),
        (deploy(3), deploy(2), True),
    ],
)
def test_an_offer_that_was_overtaken_by_a_deployment(planned: Any, offered: Any, since: bool) -> None:
    assert deployed_since(Slot(0, deploy=planned), SimpleNamespace(deployed=offered)) is since  # type: ignore[arg-type]


def test_a_refusal_says_which_epochs() -> None:
    refused = fenced("master of job j", 1, 3)
    assert refused.fenced
    assert refused.reason == "epoch 1 of the master of job j is old: 3 is known"
