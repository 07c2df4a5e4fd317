"""Spark's own plan of a job, for EXPLAIN.

Spark plans in Java, which takes seconds to start. So EXPLAIN starts one process (``python -m
penstock.spark.explain``), which opens a session at the first question and stays for later ones, whose answers
take a fraction of a second. The process asks the Spark Connect server that ``spark.remote`` names, otherwise
a local Spark with one core: planning needs no executor, so a Spark master is never asked. Each question and
each answer is a line of JSON. The process ends when its input ends.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from typing import IO, TYPE_CHECKING

import msgspec

from penstock.config import SPARK_REMOTE
from penstock.errors import PenstockError
from penstock.jobgraph.specs import SparkQuerySpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.jobgraph.graph import JobGraph

_LOCAL_URL = "local[1]"
_LOCAL = {"spark.driver.memory": "512m"}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question for Spark's plan. ``graph``: the content of a ``SparkQuerySpec``. ``cost``: whether to show
    sizes and row counts, where Spark knows them."""

    graph: str
    config: dict[str, str] = {}
    cost: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: exactly one of the two fields is set."""

    text: str = ""
    error: str = ""


def spark_plan(graph: JobGraph, cost: bool) -> str:
    """Spark's plans of a bounded job that runs on Spark, or a line that says why there are none."""
    query = next(
        (o.spec for v in graph.vertices for o in v.operators if isinstance(o.spec, SparkQuerySpec)), None
    )
    if query is None or not graph.bounded:
        return ""
    answer = _asked(Question(graph=query.graph, config=dict(graph.config), cost=cost))
    if answer.error:
        return f"== Spark Physical Plan ==\nnot known here: {answer.error}\n"
    return answer.text


@functools.cache
def _planner() -> subprocess.Popen[bytes]:
    # The process has a group of its own, so that Ctrl-C ends a statement and not the session.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock.spark.explain"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _asked(question: Question) -> Answer:
    planner = _planner()
    assert planner.stdin is not None
    assert planner.stdout is not None
    try:
        planner.stdin.write(msgspec.json.encode(question) + b"\n")
        planner.stdin.flush()
        line = planner.stdout.readline()
    except BaseException as err:  # Ctrl-C too: no later question may get this answer
        stop()
        if isinstance(err, OSError):
            return Answer(error=f"the process that asks Spark ended ({err})")
        raise
    if not line:
        code = planner.wait()
        stop()
        return Answer(error=f"the process that asks Spark ended with code {code}")
    return msgspec.json.decode(line, type=Answer)


def stop() -> None:
    """Ends the process, if it runs. The next question starts another one."""
    if _planner.cache_info().currsize:
        planner = _planner()
        planner.kill()
        planner.wait()
        for pipe in (planner.stdin, planner.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        _planner.cache_clear()


# -- in the process that asks Spark ------------------------------------------------------------------


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answers each line of ``questions`` with one line, until ``questions`` ends."""
    for line in questions:
        try:
            answer = Answer(text=_explained(msgspec.json.decode(line, type=Question)))
        except PenstockError as err:
            answer = Answer(error=f"{err.message} ({err.got})" if err.got else err.message)
        except ImportError as err:
            answer = Answer(error=f"Spark is not installed here ({err})")
        except Exception as err:
            from penstock.spark.errors import translated

            answer = Answer(error=translated(err).got or str(err))
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def _explained(question: Question) -> str:
    from penstock.plan.engine import decode_content
    from penstock.spark.engine import SparkJob

    graph = decode_content(question.graph)
    job = SparkJob(graph, _session(question.config), checked=True)
    try:
        return job.explain(cost=question.cost)
    finally:
        job.close()


def _session(config: dict[str, str]) -> SparkSession:
    from penstock.spark.reach import reached
    from penstock.spark.session import apply_meaning, open_session

    url = SPARK_REMOTE.read(config)
    if url:
        reached(url)
        return open_session(url, config)
    settings = {k: v for k, v in config.items() if k.startswith("spark.sql.")}
    session = open_session(_LOCAL_URL, {**_LOCAL, **settings}).newSession()
    apply_meaning(session, settings)
    return session


if __name__ == "__main__":
    import os

    # Standard output carries the answers, so output of Spark and of connectors goes to standard error.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, channel)
    os._exit(0)  # Spark's client leaves threads behind, which would keep a normal exit waiting.
