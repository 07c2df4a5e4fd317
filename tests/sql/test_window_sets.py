"""GROUPING SETS over windows: what is refused. Their rows: tests/golden/cases/windows."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.session import SqlSession


def test_the_older_group_windows_take_no_sets() -> None:
    session = SqlSession()
    session.execute(
        "CREATE TABLE t (a STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')"
    )
    with pytest.raises(UnsupportedError, match="GROUPING SETS with TUMBLE in GROUP BY") as caught:
        session.execute("SELECT COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' SECOND), ROLLUP (a)")
    assert "line 1, column" in caught.value.where
