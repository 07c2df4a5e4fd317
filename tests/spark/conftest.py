"""One Spark session for all tests of this folder: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.spark.session import open_session

    session = open_session("local[2]", {"spark.sql.shuffle.partitions": "2"}, name="tests")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
