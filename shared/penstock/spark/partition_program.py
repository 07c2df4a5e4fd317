"""The program of operators that an executor runs over one partition, with the facts of the job that they
need."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.jobgraph.graph import FunctionArtifact, JobGraph
from penstock.runtime.artifacts import load_functions
from penstock.spark.graph import TIME
from penstock.spark.typemap import column_names
from penstock.types.logical import BigIntType, NullType, Schema

if TYPE_CHECKING:
    from penstock.jobgraph.specs import Spec


MAX_PARALLELISM = 128
INPUT, ORDER, TAG = "__input", "__order", "__tag"
LONG = BigIntType()


@dataclass(frozen=True)
class Step:
    """One operator of a program."""

    spec: Spec
    uid: str
    name: str
    inputs: tuple[Schema, ...]
    output: Schema
    sides: dict[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True)
class JobContext:
    """The facts of a job that each of its operators gets."""

    job_name: str
    config: dict[str, str]
    functions: dict[str, FunctionArtifact] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A chain of operators. Only the first may have several inputs or keep state.

    Incoming columns: the columns of each input in turn, then ``__input`` if there are several inputs,
    ``__order`` (event time, µs) if ``ordered``, ``__time`` if ``timed``. Outgoing columns: those of the last
    step, those of each of its side outputs ``tags``, ``__tag`` if there are side outputs (0 = main output),
    ``__time`` if ``out_timed``.

    ``compact``: the columns by which the first step's changelog is compacted (empty: by whole rows); None:
    the first step only appends. ``marked``: ``__input`` always exists, and a marker row with ``__input`` −1
    keeps the partition from being empty. ``exact_timers``: rows are cut so that a timer fires before any
    later row of its key.
    """

    steps: tuple[Step, ...]
    job: JobContext
    ordered: bool = False
    timed: bool = False
    tags: tuple[str, ...] = ()
    out_timed: bool = False
    compact: tuple[int, ...] | None = None
    exact_timers: bool = False
    marked: bool = False

    @property
    def output(self) -> Schema:
        """The columns of the last step's main output."""
        return self.steps[-1].output

    def layout(self) -> tuple[list[str], list[Any]]:
        """Names and logical types of the outgoing columns."""
        names, types = column_names(self.output), list(self.output.types)
        for number, tag in enumerate(self.tags):
            side = self.steps[-1].sides[tag]
            names += [f"__s{number}_{i}" for i in range(len(side))]
            types += side.types
        if self.tags:
            names.append(TAG)
            types.append(LONG)
        if self.out_timed:
            names.append(TIME)
            types.append(LONG)
        if not names:
            names, types = ["__row"], [NullType()]
        return names, types


def load_job_functions(job: JobContext) -> Callable[[str], Any]:
    """Makes the function that loads the job's functions in a process of Spark."""
    graph = JobGraph(
        name=job.job_name, vertices=(), edges=(), config=job.config, functions=job.functions,
        python_path=job.python_path,
    )  # fmt: skip
    return asyncio.run(load_functions(graph, None, Path(tempfile.gettempdir())))


def partition_index() -> int:
    """The number of the Spark partition that this process computes; 0 outside a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
