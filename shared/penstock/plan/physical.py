"""Optimised logical plan → job graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import ENGINE, MAX_PARALLELISM, OBJECT_REUSE_CHAINING, PARALLELISM, PIPELINE_NAME
from penstock.errors import UnsupportedError
from penstock.jobgraph.graph import FunctionArtifact, JobGraph
from penstock.plan.chaining import build_vertices
from penstock.plan.explain import explain
from penstock.plan.optimizer import SourcePushDown, optimize
from penstock.plan.properties import Analysis
from penstock.plan.translation import Translator, is_bounded_final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.plan import nodes as n


def default_max_parallelism(parallelism: int) -> int:
    """max(128, next power of two of 1.5 p)."""
    wanted = -(-3 * parallelism // 2)
    return max(128, 1 << (wanted - 1).bit_length())


def plan_job(
    plan: n.LogicalPlan,
    functions: Mapping[str, FunctionArtifact] | None = None,
    *,
    push_down: SourcePushDown | None = None,
    late_sink: n.TableRef | None = None,
    python_path: tuple[str, ...] = (),
) -> JobGraph:
    """The job graph of a plan. UnsupportedError for what the engine cannot run.

    ``push_down``: asks a table's connector which equalities it applies itself.
    ``late_sink``: the table that receives late rows of window aggregates.
    """
    if ENGINE.read(plan.config) == "spark":
        raise UnsupportedError(
            "the Spark engine is not built yet",
            expected="execution.engine = auto or streaming",
            got="spark",
            where=f"configuration key '{ENGINE.key}'",
            remedy="leave the engine to Penstock; bounded jobs run on the streaming engine",
        )
    optimized = optimize(plan, push_down, late_sink)
    parallelism = PARALLELISM.read(plan.config)
    max_parallelism = MAX_PARALLELISM.read(plan.config)
    if max_parallelism <= 0:
        max_parallelism = default_max_parallelism(parallelism)
    analysis = Analysis(final=is_bounded_final(optimized))
    translator = Translator(optimized, analysis, parallelism)
    operators = translator.translate()
    vertices, edges = build_vertices(
        operators, max_parallelism=max_parallelism, chaining=OBJECT_REUSE_CHAINING.read(plan.config)
    )
    bounded = all(analysis.of(s).bounded for s in optimized.sinks)
    text = explain(plan, optimized, analysis, translator.modes, operators, vertices, edges)
    return JobGraph(
        name=PIPELINE_NAME.read(plan.config) or plan.name,
        vertices=vertices,
        edges=edges,
        config=dict(plan.config),
        functions=dict(functions or {}),
        python_path=python_path,
        bounded=bounded,
        plan=text,
    )
