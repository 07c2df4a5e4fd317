"""A whole cluster on one machine, for programs, ``penstock up``, examples and tests."""

from __future__ import annotations

from penstock.embedded.cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
