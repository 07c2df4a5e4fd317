"""Rows of a collect sink, read through REST while the job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.collect import decode_chunk
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.api.client import ClusterClient
    from penstock.types.logical import Schema


def read_batches(client: ClusterClient, job_id: str, schema: Schema) -> Iterator[Batch]:
    """Every row once, with its kind: after a restart the sink repeats rows from its checkpoint's offset
    on, and those that were given out already are left out."""
    position = 0
    for chunks in client.results(job_id):
        for chunk in chunks:
            decoded = decode_chunk(chunk.key, chunk.data)
            seen = max(0, position - decoded.offset)
            rows = decoded.rows.slice(seen)
            if rows.num_rows:
                position = decoded.offset + decoded.rows.num_rows
                batch = Batch.from_external_arrow(schema, rows)
                yield Batch(schema, batch.columns, num_rows=len(batch), kinds=decoded.kinds[seen:])
            if decoded.end:
                return
