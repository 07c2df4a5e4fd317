"""The units of ``tests/ordering.py`` are there, and a test comes where it says."""

from __future__ import annotations

from pathlib import Path

from tests.golden.test_golden import ENGINES
from tests.ordering import LONGEST, ON_SPARK_CLUSTER, PURE, rank, unit_of

ROOT = Path(__file__).parents[1]


def test_every_unit_and_package_that_is_named_is_there() -> None:
    named = {*LONGEST, *ON_SPARK_CLUSTER, *(f"tests/{name}" for name in PURE)}
    there = {"spark", "spark-cluster", "kafka", "databases", *(f"golden-{engine}" for engine in ENGINES)}
    assert {name for name in named - there if not (ROOT / name).exists()} == set()


def test_tests_that_share_a_spark_session_are_one_unit() -> None:
    assert unit_of("tests/spark/test_streaming.py::test_x[a-b]") == "spark"
    assert unit_of("tests/golden/test_golden.py::test_same_rows[joins/inner-spark]") == "spark"
    assert unit_of("tests/golden/test_golden.py::test_same_rows[joins/inner-two]") == "golden-two"
    assert unit_of("tests/e2e/test_spark_bad_input.py::test_x") == "tests/e2e/test_spark_bad_input.py"
    kit = "tests/plan/outside/test_conformance.py::TestDebounce"
    assert unit_of(f"{kit}::test_a_job_on_spark") == "spark"
    assert unit_of(f"{kit}::test_a_job") == "tests/plan/outside/test_conformance.py"
    assert unit_of("tests/table/test_rows.py::test_both_engines_give_the_same_rows[spark]") == "spark"


def test_files_that_share_a_cluster_with_spark_are_one_unit_in_their_order() -> None:
    using = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests/e2e").glob("test_*.py")
        if "spark_cluster" in file.read_text()
    }
    assert using == set(ON_SPARK_CLUSTER)
    tests = [f"{file}::test_x" for file in ON_SPARK_CLUSTER]
    backwards = [*reversed(tests)]
    assert {unit_of(test) for test in tests} == {"spark-cluster"}
    assert sorted(backwards, key=rank) == tests


def test_tests_that_share_a_broker_are_one_unit() -> None:
    assert unit_of("tests/connectors/kafka/test_kafka_source.py::test_x") == "kafka"
    assert unit_of("tests/compat/test_kafka_examples.py::test_x") == "kafka"
    assert unit_of("tests/e2e/test_kafka.py::test_x") == "kafka"


def test_pure_tests_come_first_then_the_longest_units() -> None:
    wanted = [
        "tests/plan/test_rules.py::t",
        f"{LONGEST[0]}::t",
        f"{LONGEST[1]}::t",
        "tests/bus/test_bus.py::t",
    ]
    assert sorted([wanted[3], wanted[1], wanted[2], wanted[0]], key=rank) == wanted
