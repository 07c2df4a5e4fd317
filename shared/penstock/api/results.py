"""Reads the rows of a collect sink through REST while the job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.collect import decode_chunk
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Self

    from penstock.api.client import ClusterClient
    from penstock.types.logical import Schema


def read_batches(client: ClusterClient, job_id: str, schema: Schema) -> Iterator[Batch]:
    """Yields every row once, with its kind. After a restart the sink repeats rows from its checkpoint's
    offset on; the rows that were yielded before are skipped."""
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


class CloseableIterator:
    """The records of ``DataStream.execute_and_collect``, as they come. It is a context manager, too.

    Args:
        rows: Gives the records; closing it cancels the job.
        abandon: Cancels the job if no record was ever asked for.
    """

    def __init__(self, rows: Generator[Any], abandon: Callable[[], None]) -> None:
        self._rows = rows
        self._abandon: Callable[[], None] | None = abandon

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._abandon = None
        return next(self._rows)

    def next(self) -> Any:
        """The next record.

        Raises:
            StopIteration: The stream has ended.
            PenstockError: The job failed.
        """
        return self.__next__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the job, unless it has ended. A second call does nothing."""
        abandon, self._abandon = self._abandon, None
        if abandon is not None:
            abandon()
        self._rows.close()

    def __del__(self) -> None:
        self.close()
