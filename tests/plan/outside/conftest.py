"""Checks that start a Java are slow ones: ``make quick`` leaves them out."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name == "test_a_job_on_spark":
            item.add_marker(pytest.mark.slow)
