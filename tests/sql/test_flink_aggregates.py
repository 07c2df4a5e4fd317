"""Flink's recorded answers to aggregates, set operations and whole queries over small tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.types.logical import LogicalType, MultisetType
from tests.functions.test_flink_rows import GROUPS, _java, _same
from tests.recorded import AGGREGATES

#: A case → its columns' types and its rows.
Run = Callable[[dict[str, str]], tuple[list[str], list[list[object]]]]
EXCEPTIONS = Path(__file__).with_name("flink_exceptions.csv")


def recorded() -> list[dict[str, str]]:
    with AGGREGATES.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cases() -> list[dict[str, str]]:
    """All that tests/functions/test_flink_rows.py does not answer."""
    return [r for r in recorded() if r["group"] not in GROUPS or " l2 " in r["sql"]]


def exceptions() -> dict[str, str]:
    """Id → why ours differs."""
    with EXCEPTIONS.open(newline="", encoding="utf-8") as file:
        return {row["id"]: row["reason"] for row in csv.DictReader(file)}


def answer(case: dict[str, str]) -> tuple[list[str], list[list[object]]]:
    session = SqlSession({"execution.runtime-mode": "BATCH"})
    list(session.run_script(case["setup"]))
    job = session.execute(case["sql"]).job
    assert job is not None
    assert job.result_schema is not None
    types = job.result_schema.types
    rows = [[shown(x, v) for x, v in zip(types, row, strict=True)] for row in run_graph(job.job_graph).rows]
    return [str(x) for x in types], rows


def shown(type_: LogicalType, value: object) -> object:
    if isinstance(type_, MultisetType) and value is not None:
        return {str(_java(k)): n for k, n in value}  # type: ignore[attr-defined]
    return _java(value)


def _elements(text: str) -> dict[str, int]:
    """``{a=1, b=2}``: the elements of a multiset have no order."""
    pairs = (item.split("=") for item in text.strip("{}").split(", ") if item)
    return {value: int(count) for value, count in pairs}


def as_recorded(case: dict[str, str], run: Run = answer) -> bool:
    if case["result"] == "ERROR":
        try:
            run(case)
        except PenstockError:
            return True
        return False
    types, rows = run(case)
    wanted = [
        [_elements(v) if isinstance(ours, dict) else v for v, ours in zip(row, rows[0], strict=True)]
        for row in json.loads(case["result"])
    ]
    if case["ordered"] != "true":
        rows, wanted = sorted(rows, key=repr), sorted(wanted, key=repr)
    return types == json.loads(case["types"]) and _same(rows, wanted)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_answer(case: dict[str, str]) -> None:
    reason = exceptions().get(case["id"])
    if reason is None:
        assert as_recorded(case), (answer(case), case["types"], case["result"])
        return
    try:
        same = as_recorded(case)
    except PenstockError:
        same = False
    assert not same, f"listed as an exception ({reason}), yet it is as recorded"


def test_every_exception_has_its_case_and_reason() -> None:
    known = {case["id"] for case in cases()}
    for name, reason in exceptions().items():
        assert name in known
        assert reason
