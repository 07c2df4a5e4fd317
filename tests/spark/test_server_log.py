"""What is said of a Spark that does not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.server_log import STARTS, telling, unready

INFO = "26/11/21 10:29:58 INFO SparkContext: Submitted application: penstock"
WARN = "26/11/21 10:29:59 WARN Utils: Service 'SparkUI' could not bind on port 4040."
ERROR = "26/11/21 10:30:00 ERROR SparkContext: Error initializing SparkContext."
NOISE = "WARNING: Using incubator modules: jdk.incubator.vector"
MEMORY = "Error occurred during initialization of VM\nCould not reserve enough space for object heap"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ([NOISE, INFO, WARN, INFO, ERROR, "\tat org.apache.Spark", INFO], [WARN, ERROR, "\tat org.apache.Spark"]),
        ([NOISE, *(f"{INFO} {n}" for n in range(30))], [f"{INFO} {n}" for n in (27, 28, 29)]),
        ([STARTS, ERROR, STARTS, INFO, WARN], [WARN]),
        ([STARTS, NOISE, MEMORY], MEMORY.split("\n")),
        ([INFO, "and its second line", WARN], [WARN]),
        ([], []),
    ],
)  # fmt: skip
def test_warnings_and_errors_of_this_start(log: list[str], told: list[str]) -> None:
    assert telling("\n".join(log)).split("\n") == (told or [""])


@pytest.mark.parametrize(
    ("log", "ended", "message", "remedy"),
    [
        (f"{INFO}\n{WARN}", False, "was not ready within 300 s", "submit the job again"),
        (INFO, True, "ended while it started", "killed from outside"),
        (MEMORY, True, "ended while it started", "set taskmanager.spark.memory"),
        ("[PS-JAVA] Spark needs Java, and none is here", True, "ended while it started", "Java 17 or newer"),
        ("Spark is not installed (pyspark)", True, "ended while it started", "pip install 'penstock[spark]'"),
    ],
)
def test_the_remedy_fits_the_cause(log: str, ended: bool, message: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"{STARTS}\n{log}\n")
    err = unready("sc://localhost:1", str(path), ended=ended, waited_s=300.0, refused="refused")
    assert message in err.message
    assert remedy in str(err.remedy)
    assert str(err.got) in log


def test_without_a_log_the_last_refusal_is_told(tmp_path: Path) -> None:
    err = unready("sc://h:1", str(tmp_path / "no.log"), ended=False, waited_s=5.0, refused="refused")
    assert err.got == "refused"
