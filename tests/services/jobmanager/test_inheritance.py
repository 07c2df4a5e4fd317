"""What a job has from its cluster, and a master from the one before it."""

from __future__ import annotations

import pytest

from penstock.config import FAMILIES, OPTIONS
from penstock.messages.decision_log import CheckpointCompleted
from penstock_services.jobmanager.inheritance import job_config, read_logged_job

#: Where a client finds the cluster, which it has found when it submits; and how it shows results.
CLIENTS = {"rest.address", "sql-client.display.max-column-width"}
ALSO_OF_JOBS = {"nats.url"}


@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_every_option_of_jobs_may_stand_in_the_clusters_configuration(key):
    of_jobs = OPTIONS[key].scope == "job" and key not in CLIENTS
    if key.startswith("taskmanager.memory.") or key in ALSO_OF_JOBS:
        of_jobs = True
    assert (key in job_config({key: "x"}, {})) == of_jobs


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.prefix)
def test_so_may_their_families(family):
    key = f"{family.prefix}something"
    assert (key in job_config({key: "x"}, {})) == (family.scope == "job")


def test_the_jobs_own_word_goes_first():
    cluster = {"spark.master": "spark://a:7077", "spark.executor.memory": "2g"}
    assert job_config(cluster, {"spark.master": "local[2]"}) == {
        "spark.master": "local[2]", "spark.executor.memory": "2g",
    }  # fmt: skip


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
