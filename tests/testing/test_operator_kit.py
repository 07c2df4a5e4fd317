"""The operators' kit finds what only whole jobs show: faults of restoring, and of the way to Spark."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from penstock.jobgraph.specs import WatermarkSpec
from penstock.plan import nodes as n
from penstock.testing import OperatorConformance, run_graph, run_kit
from penstock.testing import on_spark as spark_door
from penstock.testing.killed import run_killed
from penstock.types import logical as t
from tests.plan.outside import test_outside as outside
from tests.plan.outside.delta.node import delta
from tests.testing.wrong_operators import Held, Misplaced

TIMED = t.Schema.of(("k", t.BigIntType(False)), ("at", t.TimestampType(3, False)))
START = datetime.datetime(2026, 1, 1)


class HeldKit(OperatorConformance):
    watermarks = (WatermarkSpec(rowtime=1),)
    repeats = False

    def schemas(self) -> list[t.Schema]:
        return [TIMED]

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [[(i, START + datetime.timedelta(seconds=i)) for i in range(30)]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Held(input=inputs[0], time=1, repeats=self.repeats, schema=inputs[0].schema)

    def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        return rows[0]


class RepeatingKit(HeldKit):
    repeats = True


class DeltaKit(OperatorConformance):
    def schemas(self) -> list[t.Schema]:
        return [outside.SCHEMA]

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [outside.ROWS[:60]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return delta(inputs[0], (0,), 2)

    def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        return list(outside.differences(rows[0]).elements())


class MisplacedKit(DeltaKit):
    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        right = delta(inputs[0], (0,), 2)
        return Misplaced(input=right.input, keys=right.keys, value=right.value, schema=right.schema)


def test_an_operator_that_holds_rows_until_the_watermark_passes() -> None:
    assert [str(failure) for failure in run_kit(HeldKit)] == []


def test_rows_that_the_watermark_let_go_and_a_restored_job_gives_again_are_found() -> None:
    """Alone it passes: its first watermark is the last one there."""
    failures = run_kit(RepeatingKit)
    assert [failure.check for failure in failures] == ["test_a_job_killed_behind_every_checkpoint"]
    assert "0 rows are missing" in str(failures[0])


def test_rows_that_do_not_meet_on_spark_are_found() -> None:
    pytest.importorskip("pyspark")
    failures = run_kit(MisplacedKit)
    assert [failure.check for failure in failures] == ["test_a_job_on_spark"]
    assert str(failures[0].error).startswith("a job on Spark: ")


def test_the_job_is_killed_as_often_as_it_has_steps() -> None:
    """No attempt but the last one comes to the end, and the last one is restored."""
    kit, seen = DeltaKit(), []

    def planned(parallelism: int) -> Any:
        seen.append(parallelism)
        return kit._job(parallelism)

    async def run() -> Any:
        return await run_killed(planned, ["DeltaKit-0"], step_rows=7, parallelisms=(1, 3))

    import asyncio

    result = asyncio.run(run())
    assert len(seen) == 10  # once to know the rows; killed behind 7, 14 … 56 of 60 rows; to the end
    assert set(seen) == {1, 3}
    assert sorted(result.rows, key=repr) == sorted(run_graph(kit._job(1)).rows, key=repr)


@pytest.mark.parametrize("kit", [HeldKit, DeltaKit])
def test_without_pyspark_the_check_is_skipped_with_a_word(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import unittest

    monkeypatch.setattr(spark_door.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(unittest.SkipTest) as skipped:
        kit().test_a_job_on_spark()
    expected = "declares nothing for Spark" if kit is HeldKit else "pyspark is not installed"
    assert expected in str(skipped.value)
