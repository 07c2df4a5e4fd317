"""Previews of an edge: rows that a running job sends over it, asked for by a dispatcher.

The dispatcher asks a task manager again and again, and the task manager asks its slots. A slot looks at the edge only
for a few seconds after each request, so a tap ends by itself when nobody asks any more.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Tap(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at. ``tap_id``: names the listener, so that each answer has the rows since the one before.

    ``rows``: the most rows in an answer; of more, a random sample. ``lease_ms``: how long the slot goes on looking without
    another request; 0 ends it. ``hidden``: patterns of columns whose values are not shown.
    """

    tap_id: str
    edge_id: str
    rows: int
    lease_ms: int
    hidden: tuple[str, ...] = ()


class TapEdge(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tap-edge"):
    """To the slot: answer with ``EdgeTapped``, and go on looking."""

    request_id: str
    tap: Tap


class TappedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row. ``kind``: +I, -U, +U or -D. ``time_us``: its event time in µs since 1970, where the record itself has one.
    ``values``: as JSON, one for each column."""

    subtask: int
    kind: str
    time_us: int | None = None
    values: list[Any]


class EdgeTapped(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="edge-tapped"):
    """The rows since the last answer in their order, with the names and types of their columns.

    ``passed``: the rows of which ``rows`` are a random sample. ``unseen``: more rows, at which the slot did not look
    because looking had taken its share of processor time. ``failure``: why the slot cannot look; empty if it can.
    """

    request_id: str
    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[TappedRow, ...] = ()
    passed: int = 0
    unseen: int = 0
    failure: str = ""
