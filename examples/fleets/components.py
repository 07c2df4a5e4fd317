"""Connected components by alternating large-star and small-star steps over DataFrames.

Each step moves edges towards the smallest node of their component, so that a path of n edges
takes about log n rounds, not n. (Kiveris and others, "Connected Components in MapReduce and
Beyond", SoCC 2014.) ``localCheckpoint`` cuts the plan, which would double with every round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark import StepContext


def run(step: StepContext) -> None:
    least = int(step.config["user.fleets.flights"])
    pairs = step.table("flights").where("tailnum IS NOT NULL").groupBy("tailnum", "dest").count()
    edges = pairs.where(F.col("count") >= least).select(
        F.concat(F.lit("aircraft "), "tailnum").alias("a"), F.concat(F.lit("airport "), "dest").alias("b")
    )
    step.insert("components", connected_components(edges))


def connected_components(edges: DataFrame) -> DataFrame:
    """``edges``: columns a, b. Gives ``node`` and ``component``, the component's smallest node."""
    edges = (
        edges.where("a <> b").select(F.greatest("a", "b").alias("a"), F.least("a", "b").alias("b")).distinct()
    )
    edges, before = edges.localCheckpoint(), None
    while (now := fingerprint(edges)) != before:
        before = now
        edges = small_star(large_star(edges)).localCheckpoint()
    # Now every edge goes from a node to its component's smallest.
    smallest = edges.select(F.col("b").alias("node"), F.col("b").alias("component"))
    others = edges.select(F.col("a").alias("node"), F.col("b").alias("component"))
    return smallest.union(others).distinct()


def large_star(edges: DataFrame) -> DataFrame:
    """Every node's larger neighbours are connected with the smallest of it and its neighbours."""
    both = edges.union(edges.select("b", "a"))
    smallest = both.groupBy("a").agg(F.least("a", F.min("b")).alias("m"))
    return (
        both.join(smallest, "a")
        .where("b > a")
        .select(F.col("b").alias("a"), F.col("m").alias("b"))
        .distinct()
    )


def small_star(edges: DataFrame) -> DataFrame:
    """Every node and its smaller neighbours are connected with the smallest of these."""
    smallest = edges.groupBy("a").agg(F.min("b").alias("m"))
    moved = edges.join(smallest, "a").select(F.col("b").alias("a"), F.col("m").alias("b"))
    own = smallest.select("a", F.col("m").alias("b"))
    return moved.union(own).where("a <> b").distinct()


def fingerprint(edges: DataFrame) -> tuple[int, int]:
    """(how many, a sum of hashes): equal when a round changed nothing."""
    row = edges.agg(
        F.count("*"), F.coalesce(F.sum(F.xxhash64("a", "b").cast("decimal(38, 0)")), F.lit(0))
    ).first()
    assert row is not None
    return int(row[0]), int(row[1])
