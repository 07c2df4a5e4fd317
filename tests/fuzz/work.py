"""What a process of the fuzzer does: some seeds, one after the other."""

from __future__ import annotations

import time
from typing import Any

from tests.fuzz.campaign import case_of, judge, runs, shrunk, told


def session() -> Any:
    from penstock.spark.session import open_session

    opened = open_session("local[1]", {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"},
                          name="fuzz")  # fmt: skip
    opened.sparkContext.setLogLevel("OFF")
    return opened


def tried(seeds: range, *, spark: bool, shrink: bool) -> list[dict[str, Any]]:
    opened = session() if spark else None
    out = []
    for seed in seeds:
        case = case_of(seed)
        ways = runs(case.mode, opened)
        started = time.perf_counter()
        verdict = judge(case, ways)
        found: dict[str, Any] = {"seed": seed, "status": verdict.status, "engine": verdict.engine, "mode": case.mode,
                                 "seconds": round(time.perf_counter() - started, 3), "words": verdict.words[:400]}  # fmt: skip
        if verdict.finding:
            if shrink:
                case, verdict = shrunk(case, verdict, ways)
            found["told"] = told(case, verdict)
        out.append(found)
    if opened is not None:
        opened.stop()
    return out
