"""Workloads: what a simulated job computes, declared in ``workloads/*.yaml``."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import InternalError, SpecError
from penstock.jobgraph import JobGraph
from penstock.testing.simulation import World, virtual_time
from penstock.types.batch import RowKind
from tests.simulation import connector, faults  # noqa: F401  'simulated' is known by its import

FOLDER = Path(__file__).with_name("workloads")

Row = tuple[Any, ...]
Change = tuple[RowKind, Row]


@dataclass(frozen=True)
class Workload:
    """``sources``: name → declaration of rows; ``sinks``: name → how its output is checked.
    ``sql``, or ``program``: ``module:function`` that gives a job graph for a parallelism."""

    name: str
    sources: Mapping[str, Any]
    sinks: Mapping[str, Mapping[str, Any]]
    parallelism: int
    config: Mapping[str, str]
    sql: str = ""
    program: str = ""
    #: settings of the services, over those of ``cluster.CONFIG``
    cluster: Mapping[str, str] = field(default_factory=dict)
    taskmanagers: int = 2
    #: False: only when it is asked for by name
    drawn: bool = True
    #: JetStream streams that rows of sources are published to as they come: stream → source
    streams: Mapping[str, str] = field(default_factory=dict)
    #: faults that only this one knows: they befall two seeds in three, beside what is drawn
    faults: Sequence[str] = ()
    #: another workload that runs on the same cluster, as a job of its own
    beside: str = ""

    def graph(self, parallelism: int) -> JobGraph:
        return _plan(self.name, parallelism)

    @property
    def needs_nats(self) -> bool:
        return bool(self.streams) or any("stream" in sink for sink in self.all_sinks().values())

    def jobs(self) -> list[Workload]:
        return [self, load(self.beside)] if self.beside else [self]

    def all_sources(self) -> dict[str, Any]:
        return {name: source for job in self.jobs() for name, source in job.sources.items()}

    def all_sinks(self) -> dict[str, Mapping[str, Any]]:
        return {name: sink for job in self.jobs() for name, sink in job.sinks.items()}


@functools.cache
def load(name: str) -> Workload:
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        raise SpecError(f"no workload '{name}'", expected=", ".join(names()), got=name)
    tree = yaml.safe_load(path.read_text())
    tree["config"] = {key: str(value) for key, value in tree["config"].items()}
    return Workload(name=name, **tree)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@functools.cache
def drawn() -> list[str]:
    """Those that a seed may stand for."""
    return [name for name in names() if load(name).drawn]


@functools.cache
def common_faults() -> list[str]:
    """Those that mean something to every workload."""
    own = {fault for name in names() for fault in load(name).faults}
    return [name for name in faults.names() if name not in own]


@functools.cache
def _plan(name: str, parallelism: int) -> JobGraph:
    with virtual_time(World(0)):  # pickled classes carry a random number
        return _plan_now(load(name), parallelism)


def _plan_now(workload: Workload, parallelism: int) -> JobGraph:
    config = {**workload.config, "parallelism.default": str(parallelism)}
    if workload.program:
        import importlib

        module, _, function = workload.program.partition(":")
        graph: JobGraph = getattr(importlib.import_module(module), function)(workload, config)
        return graph
    from penstock.sql.session import SqlSession

    job = None
    for result in SqlSession(config).run_script(workload.sql):
        job = result.job or job
    if job is None:
        raise SpecError(f"the workload '{workload.name}' has no INSERT")
    found: JobGraph = job.job_graph
    return found


# -- what a sink must show -----------------------------------------------------------------


def broken_chain(changes: Sequence[Change], key: Sequence[int]) -> str | None:
    """Each change of a key must retract exactly what the one before it said: a row that
    is lost or doubled breaks the chain. The first break in words, or None."""
    current: dict[Row, Row | None] = {}
    for kind, row in changes:
        at = tuple(row[i] for i in key)
        before = current.get(at)
        match kind:
            case RowKind.INSERT | RowKind.UPDATE_AFTER:
                if before is not None:
                    return f"{kind.short} {row} follows {before}, which was not retracted"
                current[at] = row
            case RowKind.UPDATE_BEFORE | RowKind.DELETE:
                if before != row:
                    return f"{kind.short} {row} follows {before}"
                current[at] = None
    return None


def final_rows(changes: Sequence[Change]) -> Counter[Row]:
    """The multiset that a changelog adds up to."""
    rows: Counter[Row] = Counter()
    for kind, row in changes:
        rows[row] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    return Counter({row: n for row, n in rows.items() if n})


def difference(expected: Counter[Row], got: Counter[Row], *, doubles: bool = False) -> str | None:
    """In words, a few rows of each kind; None when they agree. ``doubles``: are no fault."""
    if doubles:
        got = Counter({row: min(n, expected[row]) if row in expected else n for row, n in got.items()})
    if expected == got:
        return None
    lost, more = expected - got, got - expected
    if not lost and not more:
        raise InternalError("negative counts", got=str(got))
    return f"{sum(lost.values())} rows lost {list(lost)[:3]}, {sum(more.values())} too many {list(more)[:3]}"


def check_sink(workload: Workload, sink: str, changes: Sequence[Change]) -> str | None:
    how = workload.all_sinks()[sink]
    if how["check"] == "chain":
        return broken_chain(changes, how["key"])
    if how["check"] == "append":
        doubled = [row for row, n in Counter(row for _, row in changes).items() if n > 1]
        return f"doubled: {doubled[:3]}" if doubled else None
    if how["check"] in ("final", "at-least-once"):
        return None
    raise SpecError(
        "unknown check of a sink", expected="chain, append, final or at-least-once", got=how["check"]
    )
