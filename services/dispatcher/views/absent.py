"""Answers about things that Flink has and Penstock does not have. They are empty."""

from __future__ import annotations

from penstock_services.dispatcher.views.common import Camel, Shape

#: Values in place of a flame graph's time: there is no sampling; the vertex has ended.
DISABLED, ENDED = -2, -1


class Jars(Shape, frozen=True, kw_only=True):
    """``GET /jars``"""

    address: str
    files: list[None] = []


class DataSets(Camel, frozen=True, kw_only=True):
    """``GET /datasets``"""

    data_sets: list[None] = []


class Profiles(Camel, frozen=True, kw_only=True):
    """``GET …/profiler``"""

    profiling_list: list[None] = []


class FlameGraph(Camel, frozen=True, kw_only=True):
    """``GET …/flamegraph``. ``endTimestamp``: -2: there is no sampling; -1: the vertex has ended."""

    end_timestamp: int
    data: None = None
