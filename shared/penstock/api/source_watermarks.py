"""Watermarks that a source makes itself, for each split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.selectors import column_index, traced
from penstock.config import WATERMARK_INTERVAL_MS
from penstock.jobgraph.specs import WatermarkSpec
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.api.common import WatermarkStrategy
    from penstock.api.settings import Settings
    from penstock.types.logical import Schema


def per_split(strategy: WatermarkStrategy, schema: Schema, settings: Settings) -> WatermarkSpec | None:
    """How the source itself makes watermarks; None: the source cannot, and a step after it makes them."""
    rowtime = None
    if strategy.generator is not None:
        return None
    if strategy.column is not None:
        rowtime = column_index(schema, strategy.column, "with_timestamp_column")
    elif strategy.assigner is not None:
        extract = getattr(strategy.assigner, "extract_timestamp", strategy.assigner)
        found = traced(extract, schema, 0)
        if found is None or len(found) != 1:
            return None
        rowtime = found[0]
    if rowtime is not None and not isinstance(schema.types[rowtime], t.TIMESTAMPS):
        return None
    idle = strategy.idle_timeout_ms
    return WatermarkSpec(
        rowtime=rowtime,
        delay_us=strategy.delay_us,
        idle_timeout_ms=settings.idle_timeout_ms() if idle is None else idle,
        idle_source=idle is not None or settings.idle_sources,
        interval_ms=WATERMARK_INTERVAL_MS.read(settings.configuration),
    )
