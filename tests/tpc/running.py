"""A query on an engine, in a process of its own: what hangs is ended, what crashes is told."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from penstock.errors import PenstockError

ENGINES = ("streaming", "spark")
#: Planning included.
LIMIT_S = 300.0
#: Against hanging only: on a crowded machine Spark alone takes minutes to start.
_START_S = 1800.0


@dataclass(frozen=True)
class Outcome:
    """``rows``: what it gave; ``text``: why it was refused, or how it failed."""

    kind: Literal["rows", "refused", "failed", "hangs"]
    seconds: float = 0.0
    rows: tuple[tuple[Any, ...], ...] = ()
    text: str = ""


class Runner:
    """Runs queries over declared tables. ``with Runner(…) as run: run(sql)``."""

    def __init__(self, engine: str, declarations: list[str], limit_s: float = LIMIT_S) -> None:
        self.engine, self.declarations, self.limit_s = engine, declarations, limit_s
        self._process: Any = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, sql: str) -> Outcome:
        if self._process is None:
            self._start()
        begun = time.monotonic()
        self._pipe.send(sql)
        try:
            if not self._pipe.poll(self.limit_s):
                self._end()
                return Outcome("hangs", time.monotonic() - begun, text=f"not done after {self.limit_s:g} s")
            return self._pipe.recv()
        except EOFError:
            self._end()
            return Outcome("failed", time.monotonic() - begun, text="the process ended")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self.engine, self.declarations, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._pipe.poll(_START_S):
            self._end()
            raise TimeoutError(f"{self.engine} has not started after {_START_S:g} s")
        self._pipe.recv()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(engine: str, declarations: list[str], pipe: Connection) -> None:
    run = _spark() if engine == "spark" else _streaming
    pipe.send("ready")
    while True:
        try:
            sql = pipe.recv()
        except EOFError:
            return
        begun = time.monotonic()
        try:
            rows = run(sql, declarations)
            made = Outcome("rows", time.monotonic() - begun, tuple(map(tuple, rows)))
        except PenstockError as err:
            kind: Any = "refused" if err.code in ("PS-SQL", "PS-UNSUPPORTED") else "failed"
            made = Outcome(kind, time.monotonic() - begun, text=err.message)
        except Exception as err:
            told = traceback.format_exc(limit=-3)
            made = Outcome("failed", time.monotonic() - begun, text=f"{type(err).__name__}: {err}\n{told}")
        pipe.send(made)


def _planned(sql: str, declarations: list[str], engine: str, support: Any = None) -> Any:
    from penstock.sql.session import SqlSession

    session = SqlSession({"parallelism.default": "2", "execution.engine": engine}, spark=support)
    for statement in declarations:
        session.execute(statement)
    job = session.execute(sql).job
    assert job is not None
    return job.job_graph


def _streaming(sql: str, declarations: list[str]) -> list[Any]:
    from penstock.testing import run_graph

    return run_graph(_planned(sql, declarations, "streaming"), timeout_s=LIMIT_S * 4).rows


def _spark() -> Any:
    from penstock.spark.engine import SparkJob
    from penstock.spark.session import open_session
    from penstock.spark.support import spark_support
    from tests.golden.engines import spark_graph

    session = open_session("local[2]", {"spark.sql.shuffle.partitions": "2"}, name="tpc")
    session.sparkContext.setLogLevel("ERROR")
    support = spark_support()

    def run(sql: str, declarations: list[str]) -> list[Any]:
        return SparkJob(spark_graph(_planned(sql, declarations, "spark", support)), session).run().rows

    return run
