"""The reader of ``faker``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.connectors.faker.fields import makers_of
from penstock.connectors.faker.settings import OPTIONS
from penstock.connectors.paced import PacedReader, Share
from penstock.types import Batch

if TYPE_CHECKING:
    from penstock.connectors.base import TableInfo

#: The approximate CPU time of one poll, ns. The library needs some 20 µs for each value and blocks the slot's
#: other tasks meanwhile.
_SPELL_NS = 1_500_000
_MOST_ROWS = 1024


class FakerReader(PacedReader):
    """Makes each row from the seed and the row's number, so a restart makes the same rows again."""

    def __init__(self, table: TableInfo) -> None:
        options = OPTIONS.read(table.options)
        super().__init__(options["rows-per-second"])
        self._seed: int = options["seed"]
        self._makers = makers_of(table)

    def make(self, share: Share, most: int) -> Batch:
        makers = [self._makers[i] for i in self.ctx.projection]
        schema = self.ctx.schema.select(self.ctx.projection)
        values: list[list[object]] = [[] for _ in makers]
        began = time.thread_time_ns()
        count = 0
        while count < min(most, _MOST_ROWS):
            number = (share.row + count) * share.of + share.index
            for column, maker in zip(values, makers, strict=True):
                column.append(maker.value(self._seed, number))
            count += 1
            if time.thread_time_ns() - began > _SPELL_NS:
                break
        columns = [maker.made(column) for maker, column in zip(makers, values, strict=True)]
        return Batch(schema, columns, num_rows=count)
