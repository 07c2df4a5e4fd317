"""``penstock doctor``: what it finds on a machine and in a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import doctor, local_checks
from penstock.cli.doctor import cluster_findings, run_doctor
from penstock.cli.local_checks import Finding, disk, extra_packages, memory, packages, requirements, sandbox
from penstock.errors import ExternalError

GIB = 1 << 30


def test_requirements_are_told_from_extras() -> None:
    lines = [
        "numpy>=2.2",
        "confluent-kafka<3,>=2.16; extra == 'kafka'",
        'fastavro[snappy,zstandard]<2; extra == "avro"',
        "pandas<3; extra == 'spark'",
        "pyspark==4.3.0; extra == 'spark'",
    ]
    extras = {"kafka": ["confluent-kafka"], "avro": ["fastavro"], "spark": ["pandas", "pyspark"]}
    assert requirements(lines) == (["numpy"], extras)


def test_missing_packages_and_half_installed_extras() -> None:
    installed = {"numpy": "2.2", "pandas": "2.2"}
    assert packages(["numpy"], installed.get).level == "ok"
    missing = packages(["numpy", "uvloop"], installed.get)
    assert (missing.level, missing.remedy) == ("fail", "pip install uvloop")
    found = extra_packages(
        {"spark": ["pandas", "pyspark"], "half": ["pandas"], "dev": ["ruff"]}, installed.get
    )
    assert found.found == "installed: half; absent: spark"


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (memory(8 * GIB), "ok"),
        (memory(GIB // 2), "note"),
        (memory(None), "note"),
        (disk(Path("/scratch"), 80 * GIB), "ok"),
        (disk(Path("/scratch"), GIB), "note"),
        (sandbox({}), "ok"),
        (sandbox({"seccomp": ExternalError("needs libseccomp", remedy="install it")}), "note"),
    ],
)
def test_memory_and_disk(finding: Finding, level: str) -> None:
    assert finding.level == level
    assert finding.remedy or level == "ok" or "does not tell" in finding.found


def test_a_cluster_without_task_managers_fails() -> None:
    overview = {"resourcemanager": True, "slots-available": 0, "slots-total": 0}
    processes = [{"role": r, "id": f"{r}-1"} for r in ("dispatcher", "jobmanager", "resourcemanager")]
    found = {f.what: f.level for f in cluster_findings(overview, processes)}
    assert found == {
        "dispatcher": "ok", "jobmanager": "ok", "resourcemanager": "ok", "taskmanager": "fail", "slots": "note",
    }  # fmt: skip


def test_this_machine_passes_and_an_absent_cluster_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert run_doctor(None, "json", write=said.append) == 0, said
    found = json.loads(said[0])["this machine"]
    assert {"python", "packages", "nats-server", "valkey-server", "leveldb", "sandbox"} <= {
        f["what"] for f in found
    }
    monkeypatch.setattr(doctor, "check_machine", list)
    said.clear()
    assert run_doctor("http://127.0.0.1:1", "text", write=said.append) == 1
    assert said[1].startswith("the cluster at")
    assert "FAIL  address" in said[2]


def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local_checks.tempfile, "tempdir", str(tmp_path / "absent"))
    found = local_checks._leveldb()
    assert found.level == "fail"
    assert "absent" in found.found
