"""Tests of jobs on Spark; their session is ``spark`` of tests/conftest.py."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
