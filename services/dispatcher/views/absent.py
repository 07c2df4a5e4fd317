"""Answers about things that Flink has and Penstock does not have. They are empty."""

from __future__ import annotations

from penstock_services.dispatcher.views.common import Camel


class DataSets(Camel, frozen=True, kw_only=True):
    """``GET /datasets``"""

    data_sets: list[None] = []


class Profiles(Camel, frozen=True, kw_only=True):
    """``GET …/profiler``"""

    profiling_list: list[None] = []
