"""Makes the job graph of a logical plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import MAX_PARALLELISM, OBJECT_REUSE_CHAINING, PARALLELISM, PIPELINE_NAME, REUSE_SOURCE
from penstock.errors import UnsupportedError
from penstock.jobgraph import dependencies
from penstock.jobgraph.graph import FunctionArtifact, JobGraph
from penstock.jobgraph.letters import keeps_letters
from penstock.plan import nodes as n
from penstock.plan.backfill import with_backfill
from penstock.plan.chaining import build_vertices
from penstock.plan.earlier_ids import originals_of
from penstock.plan.engine import EngineChoice, SparkSupport, choose_engine, for_small_input, on_spark
from penstock.plan.explain import explain
from penstock.plan.guarantees import guarantees
from penstock.plan.letters import letter_sink
from penstock.plan.optimizer import SourcePushDown, optimize
from penstock.plan.properties import Analysis
from penstock.plan.rewriting import walk
from penstock.plan.translation import Translator, is_bounded_final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def default_max_parallelism(parallelism: int) -> int:
    """The smallest power of two that is at least 1.5 times the parallelism and at least 128, as in Flink."""
    wanted = -(-3 * parallelism // 2)
    return max(128, 1 << (wanted - 1).bit_length())


def plan_job(
    plan: n.LogicalPlan,
    functions: Mapping[str, FunctionArtifact] | None = None,
    *,
    push_down: SourcePushDown | None = None,
    late_sink: n.TableRef | None = None,
    letter_table: n.TableRef | None = None,
    python_path: tuple[str, ...] = (),
    spark: SparkSupport | None = None,
    input_bytes: Callable[[n.TableRef], int | None] | None = None,
) -> JobGraph:
    """The job graph of a plan. UnsupportedError for what the engine cannot run.

    ``push_down``: asks a table's connector which equalities the connector applies itself.
    ``late_sink``: the table that receives late rows of window aggregates. ``letter_table``: the table that receives dead
    letters.
    ``input_bytes``: estimates the bytes of a table that is read; None for an unknown size.
    ``spark``: the job may run on Spark (None: the streaming engine is the only one).
    """
    functions = {**(functions or {}), **dependencies.entries(plan.config)}
    each_alone = optimize(plan, push_down, late_sink, as_one_job=False)
    optimized, originals = each_alone, dict[str, n.Node]()
    if REUSE_SOURCE.read(plan.config):
        optimized = optimize(plan, push_down, late_sink)
        originals = originals_of(optimized.sinks, each_alone.sinks)

    chaining = OBJECT_REUSE_CHAINING.read(plan.config)

    def graph_of(parallelism: int, chained: bool = True, *, streaming: bool = True) -> JobGraph:
        return _job_graph(
            plan,
            optimized if streaming else each_alone,
            parallelism,
            chaining and chained,
            dict(functions),
            python_path,
            originals if streaming else {},
            letter_table,
        )

    streaming = PARALLELISM.read(plan.config)
    if spark is None:
        return with_backfill(graph_of(streaming), graph_of, None)
    facts = Analysis()
    scans = [node.table for node in walk(optimized.sinks) if isinstance(node, n.Scan)]
    choice = choose_engine(
        plan.config,
        bounded=all(facts.of(sink).bounded for sink in optimized.sinks),
        reads_tables=bool(scans),
        spark=spark,
    )
    if input_bytes is not None and all(sink.table.connector == "collect" for sink in optimized.sinks):
        small = for_small_input(choice, plan.config, (input_bytes(table) for table in scans))
        if small is not choice and _runs_here(lambda: graph_of(streaming)):
            choice = small
    if choice.engine == "spark":
        graph = graph_of(1, streaming=False)
        try:
            spark.check(graph)
            return on_spark(_saying(graph, choice))
        except UnsupportedError as err:
            if choice.asked:
                raise
            reason = f"all sources are bounded, but Spark cannot run it: {err.message}"
            choice = EngineChoice("streaming", reason)
    return with_backfill(_saying(graph_of(streaming), choice), graph_of, spark)


def _runs_here(planned: Callable[[], JobGraph]) -> bool:
    """Whether the streaming engine can run the job."""
    try:
        planned()
    except UnsupportedError:
        return False
    return True


def _saying(graph: JobGraph, choice: EngineChoice) -> JobGraph:
    plan = f"== Engine ==\n{choice.engine}: {choice.reason}\n{graph.plan}"
    return msgspec.structs.replace(graph, plan=plan)


def _job_graph(
    plan: n.LogicalPlan,
    optimized: n.LogicalPlan,
    parallelism: int,
    chaining: bool,
    functions: dict[str, FunctionArtifact],
    python_path: tuple[str, ...],
    originals: Mapping[str, n.Node],
    letter_table: n.TableRef | None,
) -> JobGraph:
    max_parallelism = MAX_PARALLELISM.read(plan.config)
    if max_parallelism <= 0:
        max_parallelism = default_max_parallelism(parallelism)
    analysis = Analysis(final=is_bounded_final(optimized))
    translator = Translator(optimized, analysis, parallelism, originals, functions)
    operators = translator.translate()
    if letter_table is not None and any(keeps_letters(op.spec) for op in operators):
        sink = letter_sink(letter_table, bounded=all(analysis.of(x).bounded for x in optimized.sinks))
        optimized = msgspec.structs.replace(optimized, sinks=(*optimized.sinks, sink))
        translator = Translator(optimized, analysis, parallelism, originals, functions)
        operators = translator.translate()
    vertices, edges = build_vertices(operators, max_parallelism=max_parallelism, chaining=chaining)
    bounded = all(analysis.of(s).bounded for s in optimized.sinks)
    chains = guarantees(operators, plan.config, bounded=bounded)
    return JobGraph(
        name=PIPELINE_NAME.read(plan.config) or plan.name,
        vertices=vertices,
        edges=edges,
        config=dict(plan.config),
        functions=functions,
        python_path=python_path,
        bounded=bounded,
        plan=explain(plan, optimized, analysis, translator.modes, operators, vertices, edges, chains),
        guarantees=chains,
    )
