"""The model in the stream: a Python function over Arrow batches, with no Spark in it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.api import ScalarFunction, udf

DISTANCE_UNIT = 1000.0  # miles, as in train.py


@udf(result_type="DOUBLE", per="batch")
class LateProbability(ScalarFunction):
    """Arguments: origin, carrier, hour (UTC), weekday (1 = Sunday), distance (miles)."""

    def open(self, context: Any) -> None:
        self.load(context.get_job_parameter("user.model"))

    def load(self, path: str) -> None:
        weights: dict[str, dict[Any, float]] = defaultdict(dict)
        for row in ds.dataset(path, format="parquet").to_table().to_pylist():
            weights[row["feature"]][row["value"]] = row["weight"]
        self.intercept = weights.pop("intercept")[None]
        self.distance = weights.pop("distance")[None]
        self.tables = {
            feature: (pa.array(list(by_value)), np.array([*by_value.values(), 0.0]))
            for feature, by_value in weights.items()
        }

    def eval(
        self, origin: pa.Array, carrier: pa.Array, hour: pa.Array, weekday: pa.Array, distance: pa.Array
    ) -> pa.Array:
        log_odds = np.full(len(origin), self.intercept)
        for feature, values in {
            "origin": origin,
            "carrier": carrier,
            "hour": hour,
            "weekday": weekday,
        }.items():
            log_odds += self.weight(feature, values)
        log_odds += self.distance * distance.to_numpy(zero_copy_only=False) / DISTANCE_UNIT
        return pa.array(1 / (1 + np.exp(-log_odds)))

    def weight(self, feature: str, values: pa.Array) -> np.ndarray:
        """What each row's value adds; nothing for one that the history has not seen."""
        known, weights = self.tables[feature]
        at = pc.fill_null(pc.index_in(values.cast(pa.string()), value_set=known), len(known))
        return weights[at.to_numpy()]
