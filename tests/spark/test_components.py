"""The connected components of the example fleets, over graphs of known shape."""

from __future__ import annotations

from typing import Any

import pytest

from examples.fleets.components import connected_components

PATH = [(f"n{i:03d}", f"n{i + 1:03d}") for i in range(40)]


@pytest.mark.parametrize(
    ("edges", "want"),
    [
        ([], {}),
        ([("b", "a"), ("a", "b"), ("c", "c")], {"a": "a", "b": "a"}),
        (
            [*PATH, ("x", "y"), ("z", "y")],
            {**{n: "n000" for p in PATH for n in p}, "x": "x", "y": "x", "z": "x"},
        ),
        (
            [("hub", f"leaf{i}") for i in range(9)],
            dict.fromkeys(("hub", *(f"leaf{i}" for i in range(9))), "hub"),
        ),
    ],
    ids=["nothing", "both ways and a loop", "a long path and a short one", "a star"],
)
def test_components(spark: Any, edges: list[tuple[str, str]], want: dict[str, str]) -> None:
    found = connected_components(spark.createDataFrame(edges, "a string, b string")).collect()
    assert {row.node: row.component for row in found} == want
    assert len(found) == len(want)
