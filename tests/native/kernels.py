"""The compiled kernels for tests: built once where there is a compiler."""

from __future__ import annotations

import ctypes

import pytest

from penstock.errors import ExternalError
from penstock.native.library import build, library


@pytest.fixture(scope="session")
def kernels() -> ctypes.CDLL:
    """The library of this checkout's sources."""
    try:
        build()
    except ExternalError as err:
        pytest.skip(f"no compiled kernels: {err}")
    library.cache_clear()
    found = library()
    if found is None:
        pytest.skip("PENSTOCK_NATIVE=0")
    return found
