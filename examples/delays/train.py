"""The step that learns: a logistic regression of "leaves more than 15 minutes late".

The month is no feature: the months that are live do not occur in the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import OneHotEncoder, StringIndexer, VectorAssembler
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark import StepContext

LATE_MINUTES = 15
CATEGORIES = ("origin", "carrier", "hour", "weekday")
#: Miles; so that all features are of one size.
DISTANCE_UNIT = 1000.0


def features(flights: DataFrame) -> DataFrame:
    """Of each flight what the schedule says of it, and ``label``: 1.0 late, 0.0 not."""
    return flights.select(
        "origin",
        "carrier",
        F.hour("time_hour").cast("string").alias("hour"),
        F.dayofweek("time_hour").cast("string").alias("weekday"),
        (F.col("distance") / DISTANCE_UNIT).alias("distance"),
        (F.col("dep_delay") > LATE_MINUTES).cast("double").alias("label"),
    )


def run(step: StepContext) -> None:
    rows = features(step.table("history")).persist()
    found = weights(fitted(rows))
    step.insert("model", step.spark.createDataFrame(found, "feature string, value string, weight double"))
    rows.unpersist()


def fitted(rows: DataFrame) -> Any:
    """The pipeline from ``features`` to a probability."""
    indexed, encoded = [f"{c}_index" for c in CATEGORIES], [f"{c}_vector" for c in CATEGORIES]
    indexer = StringIndexer(inputCols=list(CATEGORIES), outputCols=indexed)
    encoder = OneHotEncoder(inputCols=indexed, outputCols=encoded, dropLast=False)
    assembler = VectorAssembler(inputCols=[*encoded, "distance"], outputCol="features")
    regression = LogisticRegression(maxIter=25, regParam=1e-4, standardization=False)
    return Pipeline(stages=[indexer, encoder, assembler, regression]).fit(rows)


def weights(model: Any) -> list[tuple[str, str | None, float]]:
    """The fitted pipeline as rows of the table ``model``."""
    indexer, regression = model.stages[0], model.stages[-1]
    names: list[tuple[str, str | None]] = [
        (feature, value)
        for feature, values in zip(CATEGORIES, indexer.labelsArray, strict=True)
        for value in values
    ]
    names.append(("distance", None))
    found = [(*name, float(w)) for name, w in zip(names, regression.coefficients.toArray(), strict=True)]
    return [("intercept", None, float(regression.intercept)), *found]
