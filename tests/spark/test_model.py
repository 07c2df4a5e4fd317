"""The model of the example delays: its rows, its scores in the stream, how they are judged."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from examples.delays.quality import auc, log_loss
from examples.delays.score import LateProbability
from examples.delays.train import features, fitted, weights


def test_scores_are_those_of_spark(spark: Any, tmp_path: Path) -> None:
    """The function of the stream, without Spark, against the fitted pipeline itself."""
    flights = pa.table(
        {
            "origin": ["EWR", "JFK", "LGA", "JFK"] * 50,
            "carrier": [("AA", "B6", "UA")[i * 7 % 3] for i in range(200)],
            "distance": [200 + 13 * i for i in range(200)],
            "time_hour": [datetime(2013, 1 + i % 9, 1 + i % 28, i * 5 % 24) for i in range(200)],
            "dep_delay": [float(i * 37 % 41 - 10) for i in range(200)],
        }
    )
    rows = features(spark.createDataFrame(flights)).withColumn("n", F.monotonically_increasing_id())
    model = fitted(rows)
    names = ("feature", "value", "weight")
    pq.write_table(
        pa.table([list(c) for c in zip(*weights(model), strict=True)], names=names),
        tmp_path / "model.parquet",
    )
    predicted = model.transform(rows).orderBy("n").select("probability", "hour", "weekday").collect()
    function = LateProbability()
    function.load(str(tmp_path))
    hours, days = (pa.array([int(row[i]) for row in predicted]) for i in (1, 2))
    args = [flights[c].combine_chunks() for c in ("origin", "carrier")]
    found = function.eval(*args, hours, days, flights["distance"].combine_chunks())
    assert found.to_pylist() == pytest.approx([row.probability[1] for row in predicted])
    unknown = function.eval(
        pa.array(["SFO"]), pa.array([None], pa.string()), pa.array([3]), pa.array([1]), pa.array([0])
    )
    assert 0 < unknown[0].as_py() < 1


def test_quality() -> None:
    late = np.array([False, False, True, True])
    assert auc(late, np.array([0.1, 0.2, 0.3, 0.4])) == 1
    assert auc(late, np.array([0.4, 0.3, 0.2, 0.1])) == 0
    assert auc(late, np.full(4, 0.5)) == 0.5
    assert auc(late, np.array([0.1, 0.3, 0.2, 0.4])) == 0.75
    assert log_loss(late, np.full(4, 0.5)) == pytest.approx(np.log(2))
