"""The pytest plugin, which is installed with Penstock: the fixture ``penstock``, a ``MiniCluster`` for one
test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing.mini_cluster import MiniCluster


@pytest.fixture
def penstock() -> Iterator[MiniCluster]:
    """The real runtime in this process, with tables that the test feeds and a clock that only it moves."""
    # Imported here, so that test runs which do not use Penstock do not wait for the import.
    from penstock.testing.mini_cluster import MiniCluster

    cluster = MiniCluster()
    try:
        yield cluster
    finally:
        cluster.close()
