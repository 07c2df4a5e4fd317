"""Taps over REST: edges, samples of several slots put together, roles and refusals, the end of a tap."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from penstock import config as conf
from penstock.bus import RefusedError
from penstock.errors import PenstockError, SpecError
from penstock.messages.cluster import JobDetails
from penstock.messages.details import SubtaskDetails, VertexDetails
from penstock.messages.states import ExecutionState, JobStatus
from penstock.messages.taps import EdgeTapped, TappedRow
from penstock.messages.task_manager import RequestTap, TapRows
from penstock_services.common.clock import SystemClock
from penstock_services.common.http import NotFoundError
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher import tap_api
from penstock_services.dispatcher.tap_api import TapApi, the_edge
from penstock_services.dispatcher.views.taps import edges, merged, offered, places

R = ExecutionState.RUNNING


def sample(subtask: int, rows: int, passed: int) -> EdgeTapped:
    shown = tuple(TappedRow(subtask=subtask, kind="+I", values=[i]) for i in range(rows))
    return EdgeTapped(request_id="r", columns=(("n", "INT"),), rows=shown, passed=passed)


def details(status: JobStatus = JobStatus.RUNNING, state: ExecutionState = R) -> JobDetails:
    edge = {"id": "a", "edge": "a-b-0", "ship_strategy": "HASH", "exchange": "pipelined", "tag": None}
    at = [("tm1", "s1"), ("tm1", "s1"), ("tm2", "s2")]
    subtasks = [
        SubtaskDetails(
            subtask_index=i, execution_id=f"a:{i}:1", attempt=1, state=state, taskmanager_id=tm, allocation_id=slot
        )
        for i, (tm, slot) in enumerate(at)
    ]  # fmt: skip
    return JobDetails(
        job_id="j", name="job", status=status, attempt=1, epoch=1, start_ms=0,
        vertices=[
            VertexDetails(id="a", name="Source", parallelism=3, max_parallelism=3, subtasks=subtasks),
            VertexDetails(id="b", name="Sink", parallelism=1, max_parallelism=1, inputs=[edge]),
        ],
    )  # fmt: skip


def test_edges_with_data_are_offered_first_and_the_last_of_them_before_the_others() -> None:
    def vertex(name: str, kind: str, *before: str) -> VertexDetails:
        operators = [{"uid": name, "name": name, "kind": kind}]
        inputs = [{"id": b, "edge": f"{b}{name}", "ship_strategy": "HASH", "tag": None} for b in before]
        return VertexDetails(
            id=name, name=name, parallelism=1, max_parallelism=1, operators=operators, inputs=inputs
        )

    job = msgspec.structs.replace(
        details(),
        vertices=[
            vertex("e", "enumerator"),
            vertex("r", "source", "e"),
            vertex("a", "group-aggregate", "r"),
            vertex("s", "sink", "a"),
        ],
    )
    assert [(edge.name, edge.id) for edge in offered(job)] == [("e3", "as"), ("e2", "ra"), ("e1", "er")]


def test_edges_by_id_and_by_name() -> None:
    found = edges(details())
    assert [(e.row.name, e.row.source_name, e.row.target_name) for e in found] == [("e1", "Source", "Sink")]
    assert the_edge(details(), "e1").id == the_edge(details(), "a-b-0").id == "a-b-0"
    with pytest.raises(NotFoundError, match="no edge 'e2'"):
        the_edge(details(), "e2")
    assert places(details(), found[0]) == {"tm1": {"s1": 2}, "tm2": {"s2": 1}}
    assert places(details(state=ExecutionState.CREATED), found[0]) == {}


def test_few_rows_are_all_shown_and_of_many_each_has_the_same_chance() -> None:
    few = merged([sample(0, 2, 2), sample(1, 3, 3)], 5, Random(1))
    assert [(r.subtask, r.values[0]) for r in few] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    chosen: Counter[int] = Counter()
    for seed in range(500):
        rows = merged([sample(0, 20, 9_000), sample(1, 20, 1_000)], 20, Random(seed))
        assert len(rows) == 20
        of_one = [r.values[0] for r in rows if r.subtask == 0]
        assert of_one == sorted(set(of_one))
        chosen.update(r.subtask for r in rows)
    assert 0.88 < chosen[0] / 10_000 < 0.92, "the first slot has nine tenths of the rows"


class Directory:
    """A job on two task managers, one of which does not answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RequestTap]] = []
        self.told: list[JobDetails | PenstockError] = []

    async def details(self, job_id: str) -> JobDetails:
        found = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if isinstance(found, PenstockError):
            raise found
        return found

    async def tap(self, manager: str, message: RequestTap) -> TapRows:
        self.asked.append((manager, message))
        if manager == "tm2":
            raise RefusedError("shutting down")
        return TapRows(slots={slot: sample(0, 1, 7) for slot in message.allocation_ids})


async def listened(directory: Directory, config: dict[str, str]) -> list[tuple[str, Any]]:
    api = TapApi(directory, SystemClock(), config)  # type: ignore[arg-type]
    lines = [line.decode() async for line in api._events("j", "a-b-0", 20)]
    await asyncio.gather(*api._closing)
    told = [line.split("\n") for line in lines]
    return [
        (t[0].removeprefix("event: "), json.loads(t[1].removeprefix("data: "))) for t in told if len(t) > 3
    ]


async def test_a_tap_from_its_first_row_to_the_end_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_api, "PERIOD_S", 0.0)
    directory = Directory()
    directory.told = [
        details(), PenstockError("no master"), details(state=ExecutionState.CREATED), details(JobStatus.CANCELED)
    ]  # fmt: skip
    told = await listened(directory, {conf.TAP_HIDDEN.key: "iban, *mail"})
    assert [name for name, _ in told] == ["rows", "rows", "end"]
    first, waiting, end = (data for _, data in told)
    assert first["columns"] == [{"name": "n", "type": "INT"}]
    assert first["rows"] == [{"subtask": 0, "kind": "+I", "time": None, "values": [0]}]
    assert (first["passed"], first["subtasks"], first["silent"], first["problem"]) == (7, 3, 1, "")
    assert waiting["problem"] == "no subtask sends over the edge at the moment"
    assert end == {"reason": "the job is CANCELED"}
    assert {tuple(m.tap.hidden) for _, m in directory.asked if m.tap.lease_ms} == {("iban", "*mail")}


async def test_slots_are_told_when_the_listener_goes() -> None:
    directory = Directory()
    directory.told = [details()]
    api = TapApi(directory, SystemClock(), {})  # type: ignore[arg-type]
    events = api._events("j", "a-b-0", 20)
    await anext(events)
    await events.aclose()
    await asyncio.gather(*api._closing)
    opened = [(m, asked.tap.tap_id) for m, asked in directory.asked if asked.tap.lease_ms]
    closed = [(m, asked.tap.tap_id) for m, asked in directory.asked if not asked.tap.lease_ms]
    assert sorted(m for m, _ in opened) == ["tm1", "tm2"]
    assert sorted(closed) == sorted(opened)


@pytest.mark.parametrize(("setting", "role"), [({}, Role.SUBMIT), ({conf.TAP_ROLE.key: "read"}, Role.READ)])
def test_the_role(setting: dict[str, str], role: Role) -> None:
    found = TapApi(Directory(), SystemClock(), setting).endpoints()  # type: ignore[arg-type]
    assert [(e.path, e.needs) for e in found] == [
        ("/jobs/{job}/edges", Role.READ),
        ("/jobs/{job}/edges/{edge}/tap", role),
    ]
    with pytest.raises(SpecError, match="not one of the known values"):
        TapApi(Directory(), SystemClock(), {conf.TAP_ROLE.key: "nobody"})  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", ["0", "101", "-1", "x", "9" * 40])
async def test_numbers_of_rows_that_are_refused(front, rows: str) -> None:
    job = await front.submit(name="tapped")
    answer = await front.http.get(f"/jobs/{job}/edges/e1/tap?rows={rows}")
    assert answer.status_code == 400, answer.text
    missing = await front.http.get(f"/jobs/{job}/edges/e99/tap")
    assert missing.status_code == 404
    assert "e1 (" in missing.text
