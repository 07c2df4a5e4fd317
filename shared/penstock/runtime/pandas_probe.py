"""Keeps pyarrow from importing pandas unasked.

pyarrow imports pandas, wherever it is installed, when it makes its first scalar. That costs 0.3 s and 30 MB
in every slot, for conversions that a slot never makes.
"""

from __future__ import annotations

import sys

import pyarrow as pa


class _NoPandas:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


def probe_without_pandas() -> None:
    """Lets pyarrow look for pandas, which it does once, while pandas cannot be found.

    ``to_pandas`` and similar functions look again later and find pandas.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


def use_pandas_if_imported() -> None:
    """Lets pyarrow look for pandas again if a user's code has imported pandas, so that pyarrow recognises a
    Series and takes its NaN for NULL."""
    if "pandas" in sys.modules and not pa.lib._pandas_api.have_pandas:
        pa.table({}).to_pandas()
