"""What jobs have from the configuration of their cluster."""

from __future__ import annotations

import pytest

from penstock.config import (
    FAMILIES,
    OPTIONS,
    check_cluster,
    client_defaults,
    job_defaults,
    planning_defaults,
)
from penstock.errors import SpecError

OF_ONE_JOB = sorted(key for key, option in OPTIONS.items() if option.scope == "one job")


@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_each_option_of_jobs_is_a_default_or_refused(key: str) -> None:
    assert (key in job_defaults({key: "x"})) == (OPTIONS[key].scope == "job" and key != "rest.address")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.prefix)
def test_so_are_their_families(family) -> None:
    key = f"{family.prefix}something"
    assert (key in job_defaults({key: "x"})) == (family.scope == "job")


@pytest.mark.parametrize("key", OF_ONE_JOB)
def test_an_option_of_one_job_is_no_default(key: str) -> None:
    with pytest.raises(SpecError, match=key) as caught:
        check_cluster({key: "true"})
    assert caught.value.where == f"configuration key '{key}'"


def test_which_options_are_of_one_job() -> None:
    assert OF_ONE_JOB == [
        "execution.attached",
        "execution.shutdown-on-attached-exit",
        "execution.state-recovery.keep-state",
        "execution.state-recovery.path",
        "pipeline.name",
    ]


CLUSTER = {
    "execution.engine": "spark",
    "table.local-time-zone": "Asia/Tokyo",
    "spark.executor.memory": "2g",
    "spark.hadoop.fs.s3a.secret.key": "plain",
    "user.url": "https://me:word@host/",
    "nats.url": "nats://here:4222",
    "table.catalog-store.kind": "file",
    "table.catalog-store.file.path": "/catalogs",
    "rest.port": "8081",
}


def test_plans_hold_no_secrets_of_the_cluster() -> None:
    assert set(planning_defaults(CLUSTER)) == {
        "execution.engine",
        "table.local-time-zone",
        "spark.executor.memory",
        "table.catalog-store.kind",
        "table.catalog-store.file.path",
    }
    assert job_defaults(CLUSTER).keys() >= {"spark.hadoop.fs.s3a.secret.key", "user.url", "nats.url"}


def test_clients_are_told_no_folders_of_the_services() -> None:
    assert set(client_defaults(CLUSTER)) == {
        "execution.engine",
        "table.local-time-zone",
        "spark.executor.memory",
    }
