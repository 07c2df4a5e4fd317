"""pyarrow does not import pandas by itself, and still knows it once a user does."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBED = """
import sys
import pyarrow as pa
from penstock.runtime.pandas_probe import probe_without_pandas, use_pandas_if_imported
probe_without_pandas()
pa.scalar(1.5); pa.array([1, None])
import pyarrow.dataset
assert "pandas" not in sys.modules
"""


def _run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROBED + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_not_imported_by_a_scalar() -> None:
    _run("use_pandas_if_imported(); assert 'pandas' not in sys.modules")


def test_found_when_imported_later() -> None:
    pytest.importorskip("pandas")
    _run(
        "import pandas as pd, math\n"
        "use_pandas_if_imported()\n"
        "assert pa.array(pd.Series([1.0, math.nan])).null_count == 1\n"
        "assert pa.table({'a': [1]}).to_pandas()['a'].tolist() == [1]\n"
    )
