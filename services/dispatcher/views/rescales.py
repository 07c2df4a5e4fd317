"""The parallelism of a running job. It is fixed, so its bounds are equal and the history of changes is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.dispatcher.views.common import Camel, Shape, vertex_id
from penstock_services.dispatcher.views.statistics import Summary

if TYPE_CHECKING:
    from penstock.messages.cluster import JobDetails


class RescaleCounts(Camel, frozen=True, kw_only=True):
    """How often the job was rescaled: never."""

    ignored: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


class LatestRescales(Camel, frozen=True, kw_only=True):
    """The latest changes: none."""

    completed: None = None
    failed: None = None
    ignored: None = None


class RescalesOverview(Camel, frozen=True, kw_only=True):
    """``GET /jobs/{id}/rescales/overview``"""

    rescales_counts: RescaleCounts = RescaleCounts()
    latest: LatestRescales = LatestRescales()


class RescalesSummary(Camel, frozen=True, kw_only=True):
    """``GET /jobs/{id}/rescales/summary``"""

    rescales_counts: RescaleCounts = RescaleCounts()
    rescales_duration_stats_in_millis: Summary = Summary()
    completed_rescales_duration_stats_in_millis: Summary = Summary()
    ignored_rescales_duration_stats_in_millis: Summary = Summary()
    failed_rescales_duration_stats_in_millis: Summary = Summary()


class RescaleConfig(Camel, frozen=True, kw_only=True):
    """``GET /jobs/{id}/rescales/config``. None: there is no such option."""

    rescale_history_max: int = 0
    scheduler_execution_mode: None = None
    submission_resource_wait_timeout_in_millis: None = None
    submission_resource_stabilization_timeout_in_millis: None = None
    slot_idle_timeout_in_millis: None = None
    executing_cooldown_timeout_in_millis: None = None
    executing_resource_stabilization_timeout_in_millis: None = None
    maximum_delay_for_triggering_rescale_in_millis: None = None
    rescale_on_failed_checkpoint_count: None = None


class ParallelismBounds(Camel, frozen=True, kw_only=True):
    """The lowest and the highest parallelism."""

    lower_bound: int
    upper_bound: int


class VertexRequirements(Shape, frozen=True, kw_only=True):
    """The bounds of one vertex."""

    parallelism: ParallelismBounds


def requirements(details: JobDetails) -> dict[str, VertexRequirements]:
    """Vertex id → its bounds."""
    return {
        vertex_id(v.id): VertexRequirements(
            parallelism=ParallelismBounds(lower_bound=v.parallelism, upper_bound=v.parallelism)
        )
        for v in details.vertices
    }
