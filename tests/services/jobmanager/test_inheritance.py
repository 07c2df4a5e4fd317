"""What a job has from its cluster."""

from __future__ import annotations

import pytest

from penstock.config import FAMILIES, OPTIONS
from services.jobmanager.inheritance import job_config

#: Where a client finds the cluster; which it has found when it submits.
CLIENTS = {"rest.address"}
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
