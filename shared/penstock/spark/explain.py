"""Spark's own plan of a job, for EXPLAIN.

Spark plans in Java. Whoever explains starts one process for it (``python -m
penstock.spark.explain``), which opens a session when first asked and stays for the questions
that follow: the first answer takes as long as Java takes to start, the next ones a fraction of
a second. It asks the Spark Connect server that ``spark.remote`` names, else a local Spark with
one core: planning needs no executor, so no standing master is asked for any. Each question is
a line of JSON, each answer too; the end of its input ends the process.
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
    """``graph``: of a ``SparkQuerySpec``. ``cost``: with sizes and row counts where known."""

    graph: str
    config: dict[str, str] = {}
    cost: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two."""

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
    # A group of its own: Ctrl-C ends a statement, not the session behind it.
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
    except BaseException as err:  # Ctrl-C too: the answer that is still to come is to no question
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
    """End the process, if there is one; the next question starts another."""
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
    """Answer one question per line with one line, until ``questions`` ends."""
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

    # Standard output is the channel: what Spark and connectors print must not get into it.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, channel)
    os._exit(0)  # Spark's client leaves threads behind that nobody waits for
