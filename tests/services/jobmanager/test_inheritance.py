"""What a job has from its cluster, and a master from the one before it."""

from __future__ import annotations

import pytest

from penstock.messages.decision_log import CheckpointCompleted
from penstock_services.jobmanager.inheritance import read_logged_job


@pytest.mark.parametrize(
    ("beside", "kept"),
    [
        pytest.param(None, (4, 5), id="of a version that did not write it down: the last ones"),
        pytest.param((4,), (4, 5), id="as many as are retained"),
        pytest.param((2, 4), (2, 4, 5), id="one more that shares nothing with the last"),
        pytest.param((3,), (3, 5), id="the fourth was damaged"),
        pytest.param((), (5,), id="none besides"),
    ],
)
def test_which_checkpoints_there_are_is_in_the_last_ones_entry(beside, kept):
    entries = [
        CheckpointCompleted(
            epoch=1, checkpoint_id=n, manifest_key=f"m{n}", timestamp_ms=n, beside=beside if n == 5 else ()
        )
        for n in range(1, 6)
    ]
    inherited = read_logged_job(enumerate(entries, start=1), num_retained=2).inherited
    assert [checkpoint_id for checkpoint_id, _, _ in inherited.completed] == list(kept)
