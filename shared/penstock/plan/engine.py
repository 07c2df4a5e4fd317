"""Which engine runs a planned job, and the job graph of a job that runs on Spark.

Both engines start from the same logical plan. For Spark the job graph has one phase everywhere (Spark
decides the parallelism), and becomes the *content* of one or more ``SparkQuerySpec`` operators. A sink that
Spark itself writes is one source without output; for any other sink Spark's rows come out of a source and go
into Penstock's own sink, in a slot.
"""

from __future__ import annotations

import base64
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.config import (
    BACKFILL_ENGINE,
    CHECKPOINT_INTERVAL_MS,
    ENGINE,
    EXPLAIN_SPARK,
    PARALLELISM,
    PYTHON_ARCHIVES,
    PYTHON_REQUIREMENTS,
    RECOVERY_PATH,
    RESTART_STRATEGY,
    RUNTIME_MODE,
    SMALL_INPUT,
    SPARK_MASTER,
    SPARK_REMOTE,
)
from penstock.errors import SpecError, UnsupportedError
from penstock.jobgraph.graph import (
    ChainInput,
    FunctionArtifact,
    JobGraph,
    JobVertex,
    OperatorNode,
    decode_job_graph,
    encode_job_graph,
)
from penstock.jobgraph.specs import SinkSpec, SparkProgramSpec, SparkQuerySpec
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: Environment variable of the planning process: the engine of jobs that name none.
ENGINE_VARIABLE = "PENSTOCK_ENGINE"
#: The key, Spark's own, of the folder for the checkpoints of an unbounded job on Spark. A job without the key
#: keeps them with its other objects.
SPARK_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
#: Connectors of sinks that Spark's executors write themselves.
NATIVE_SINKS = frozenset(("filesystem", "blackhole"))


@dataclass(frozen=True)
class SparkSupport:
    """What the planning process knows of Spark. ``missing``: why Spark cannot be used at all (None: it can);
    ``check``: raises UnsupportedError with the reason for a graph that Spark cannot run; ``plan``:
    gives Spark's own plan of a graph, with or without costs."""

    missing: str | None
    check: Callable[[JobGraph], None]
    plan: Callable[[JobGraph, bool], str] | None = None


@dataclass(frozen=True)
class EngineChoice:
    """``asked``: the user named the engine; otherwise the planner chose it."""

    engine: Literal["streaming", "spark"]
    reason: str
    asked: bool = False


def choose_engine(
    config: Mapping[str, str], *, bounded: bool, reads_tables: bool, spark: SparkSupport
) -> EngineChoice:
    """Chooses the engine by the configuration and by the job's sources. If the configuration asks for Spark:
    raises UnsupportedError if Spark cannot be used, and SpecError if the job begins from a savepoint."""
    default = {ENGINE.key: os.environ[ENGINE_VARIABLE]} if ENGINE_VARIABLE in os.environ else {}
    wanted, mode = ENGINE.read({**default, **config}), RUNTIME_MODE.read(config)
    if wanted == "streaming":
        return EngineChoice("streaming", f"{ENGINE.key} = streaming", asked=True)
    carried = next((key for key in (PYTHON_REQUIREMENTS, PYTHON_ARCHIVES) if key.read(config)), None)
    if carried is not None and wanted == "spark":
        raise UnsupportedError(
            "packages and archives that come with a job, on Spark",
            expected=f"{ENGINE.key} = streaming or auto",
            got=f"{ENGINE.key} = spark, {carried.key} = {carried.read(config)}",
            remedy="install them where Spark's Python runs, or run the job on the streaming engine",
        )
    begins_from = RECOVERY_PATH.read(config)
    if wanted == "spark":
        if begins_from:
            raise SpecError(
                "a job on Spark cannot begin from a savepoint: that is the streaming engine's state",
                expected=f"{ENGINE.key} = auto or streaming with {RECOVERY_PATH.key} (-s)",
                got=f"{ENGINE.key} = spark, {RECOVERY_PATH.key} = {begins_from}",
                remedy="leave --engine spark out to go on from the savepoint, or leave the savepoint out to "
                "begin anew on Spark",
            )
        if spark.missing is not None:
            raise UnsupportedError(
                "the job cannot run on Spark",
                expected="a Penstock with Spark",
                got=spark.missing,
                where=f"configuration key '{ENGINE.key}'",
                remedy="pip install 'penstock[spark]', or leave the engine to Penstock",
            )
        return EngineChoice("spark", f"{ENGINE.key} = spark", asked=True)
    if not bounded:
        return EngineChoice("streaming", "a source is unbounded")
    if carried is not None:
        return EngineChoice("streaming", f"packages or archives come with it ({carried.key})")
    if begins_from:
        return EngineChoice("streaming", f"it begins from a savepoint ({RECOVERY_PATH.key} = {begins_from})")
    if BACKFILL_ENGINE.read(config) == "spark":
        return EngineChoice("streaming", f"behind the backfill ({BACKFILL_ENGINE.key} = spark)")
    if mode == "STREAMING":
        return EngineChoice("streaming", f"{RUNTIME_MODE.key} = STREAMING")
    if not reads_tables:
        return EngineChoice("streaming", "it reads no table")
    if spark.missing is not None:
        return EngineChoice("streaming", f"all sources are bounded, but {spark.missing}")
    return EngineChoice("spark", f"all sources are bounded ({RUNTIME_MODE.key} = {mode})")


def for_small_input(
    choice: EngineChoice, config: Mapping[str, str], sizes: Iterable[int | None]
) -> EngineChoice:
    """The streaming engine instead of a Spark that nobody asked for, if a query reads few bytes. ``sizes``: the
    estimates of its tables; None for an unknown size."""
    limit = SMALL_INPUT.read(config)
    if choice.engine != "spark" or choice.asked or not limit:
        return choice
    total = 0
    for size in sizes:
        if size is None or total + size > limit:
            return choice
        total += size
    return EngineChoice(
        "streaming",
        f"a query of about {total:,} bytes ({SMALL_INPUT.key} = {limit:,}) answers before Spark has started",
    )


def on_spark(graph: JobGraph) -> JobGraph:
    """The job graph whose tasks let Spark do the work of ``graph`` (of parallelism 1).

    The job takes no checkpoints while it runs: a batch that fails begins again. Its sinks commit once, in the
    final checkpoint, or Spark commits for them.
    """
    content = encode_content(graph)
    sinks = sinks_of(graph)
    native = tuple(i for i, node in enumerate(sinks) if _native(node))
    vertices = []
    if native or not graph.bounded:
        which = native if graph.bounded else tuple(range(len(sinks)))
        name = "Spark: " + ", ".join(sinks[i].name for i in which)
        spec = SparkQuerySpec(graph=content, sinks=which)
        vertices.append(_vertex("spark-write", name, [OperatorNode(
            uid="spark-write", name=name, spec=spec, output=Schema(())
        )]))  # fmt: skip
    if graph.bounded:
        for i, sink in enumerate(sinks):
            if i not in native:
                vertices.append(_through_slot(content, i, sink))
    return msgspec.structs.replace(
        graph,
        vertices=holding(vertices, graph.config),
        edges=(),
        config={**graph.config, CHECKPOINT_INTERVAL_MS.key: "0"},
    )


def check_stream_store(graph: JobGraph, store_url: str) -> None:
    """Raises SpecError if a job of Structured Streaming would have its checkpoints in a bucket.
    ``store_url``: URL of the cluster's object store, which holds the checkpoints unless the job names a
    folder."""
    streams = not graph.bounded and any(
        isinstance(node.spec, SparkQuerySpec) for v in graph.vertices for node in v.operators
    )
    if streams:
        check_stream_folder(graph.config.get(SPARK_CHECKPOINTS) or store_url)


def check_stream_folder(location: str) -> None:
    """Raises SpecError if ``location`` cannot hold checkpoints of Structured Streaming. PySpark's wheel has
    no client for buckets. Penstock's own files beside Spark's are created only if they do not exist yet,
    which needs a file system."""
    if "://" in location and not location.startswith("file://"):
        raise SpecError(
            "Structured Streaming cannot keep its checkpoints in a bucket: PySpark has no client for it",
            expected="a path or file: URL of a folder that all of Spark's processes share",
            got=location,
            where=f"'{SPARK_CHECKPOINTS}', or else the cluster's object store",
            remedy=f"mount the bucket (or a shared disk) as a folder on every machine of Spark and set "
            f"'{SPARK_CHECKPOINTS}' to its path, e.g. /mnt/penstock/JOB; or run the job with {ENGINE.key} = "
            "streaming, whose checkpoints lie in the bucket itself",
        )


def explained(graph: JobGraph, spark: SparkSupport | None, *, cost: bool = False) -> str:
    """The text of EXPLAIN for a planned job, with Spark's own plan if the job runs on Spark."""
    if spark is None or spark.plan is None or not EXPLAIN_SPARK.read(graph.config):
        return graph.plan
    return graph.plan + spark.plan(graph, cost)


def program_graph(
    name: str,
    spec: SparkProgramSpec,
    config: Mapping[str, str],
    functions: Mapping[str, FunctionArtifact],
    python_path: tuple[str, ...],
) -> JobGraph:
    """The job graph whose one task calls ``spec.function`` with Spark. The task is not repeated after a
    failure unless the configuration names a restart strategy, because Penstock cannot know what the function
    has done already."""
    node = OperatorNode(uid=spec.function, name=name, spec=spec, output=Schema(()))
    inner = JobGraph(
        name=name, vertices=(_vertex(spec.function, name, [node]),), edges=(), config=dict(config), bounded=True
    )  # fmt: skip
    query = SparkQuerySpec(graph=encode_content(inner), sinks=(0,))
    task = OperatorNode(uid="spark-program", name=f"Spark: {name}", spec=query, output=Schema(()))
    return msgspec.structs.replace(
        inner,
        vertices=holding([_vertex("spark-program", task.name, [task])], config),
        config={RESTART_STRATEGY.key: "none", **config, CHECKPOINT_INTERVAL_MS.key: "0"},
        functions=dict(functions),
        python_path=python_path,
        plan="== Engine ==\nspark: a Python step\n",
    )


def holding(vertices: list[JobVertex], config: Mapping[str, str]) -> tuple[JobVertex, ...]:
    """The vertices; the first one also holds the slots in which Spark works.

    It holds as many slots as the job's parallelism, on the task manager that runs Spark. A Spark outside the
    cluster needs no slots.
    """
    if SPARK_MASTER.read(config) or SPARK_REMOTE.read(config):
        return tuple(vertices)
    first = msgspec.structs.replace(vertices[0], slots=PARALLELISM.read(config))
    return (first, *vertices[1:])


def encode_content(graph: JobGraph) -> str:
    """Encodes the job graph for a ``SparkQuerySpec``, without functions and code, which travel beside it."""
    bare = msgspec.structs.replace(graph, functions={}, python_path=(), plan="")
    return base64.b64encode(zlib.compress(encode_job_graph(bare))).decode()


def decode_content(text: str) -> JobGraph:
    """The job graph in a ``SparkQuerySpec``."""
    return decode_job_graph(zlib.decompress(base64.b64decode(text)))


def sinks_of(graph: JobGraph) -> list[OperatorNode]:
    """The sinks in topological order; ``SparkQuerySpec.sinks`` holds indices into this list."""
    return [node for v in graph.vertices for node in v.operators if isinstance(node.spec, SinkSpec)]


def _native(sink: OperatorNode) -> bool:
    assert isinstance(sink.spec, SinkSpec)
    options = sink.spec.options
    foreign = sink.spec.connector == "jdbc" and not options["url"].lower().startswith("jdbc:sqlite:")
    return foreign or sink.spec.connector in NATIVE_SINKS


def _through_slot(content: str, index: int, sink: OperatorNode) -> JobVertex:
    assert isinstance(sink.spec, SinkSpec)
    rows = sink.spec.schema
    query = OperatorNode(
        uid=f"spark-query-{index}",
        name="Spark",
        spec=SparkQuerySpec(graph=content, sinks=(index,), rows=rows),
        output=rows,
    )
    write = msgspec.structs.replace(sink, inputs=((ChainInput(operator=0),),))
    return _vertex(f"spark-query-{index}", f"Spark -> {sink.name}", [query, write])


def _vertex(vertex_id: str, name: str, operators: list[OperatorNode]) -> JobVertex:
    return JobVertex(id=vertex_id, name=name, operators=tuple(operators), parallelism=1, max_parallelism=128)
