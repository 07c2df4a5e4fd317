"""``blackhole``: consumes every column, counts rows, keeps a checksum.

The checksum depends neither on the order of rows nor on their batches: see ``checksum``. Two runs of one job
can therefore be compared by two numbers, ``sinkRows`` and ``sinkChecksum``. Updates by key come without the
old row, as in Flink's sink of this name. With ``'changelog' = 'retract'`` the old rows come, too, and are
subtracted: the checksum is then that of the final rows, however updates were combined on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.checksum import MASK, rows_checksum
from penstock.connectors.simple import DeclaredConnector
from penstock.options import Option, OptionSet, choice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types import Batch

OPTIONS = OptionSet(
    "connector 'blackhole'",
    [
        Option(
            "changelog",
            choice("upsert", "retract"),
            "upsert",
            "How updates come: the new row, or old and new.",
        )
    ],
)


def batch_checksum(batch: Batch) -> int:
    """Checksum of a batch modulo 2**64; rows that retract count negative."""
    if not batch.columns:
        return 0
    signs = batch.signs()
    if signs is None or signs.min(initial=1) > 0:
        return rows_checksum(batch.columns, len(batch))
    added, taken = batch.filter(signs > 0), batch.filter(signs < 0)
    return rows_checksum(added.columns, len(added)) - rows_checksum(taken.columns, len(taken))


class BlackholeWriter(SinkWriter):
    """Counts rows. The count and the checksum are part of checkpoints, so a restored run counts each row
    once."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        for item in restored:
            rows, checksum = item.decode().split(":")
            self.rows += int(rows)
            self.checksum = (self.checksum + int(checksum, 16)) & MASK
        ctx.metrics.gauge("sinkRows", lambda: self.rows)
        ctx.metrics.gauge("sinkChecksum", lambda: self.checksum)

    def write(self, batch: Batch) -> None:
        self.rows += len(batch)
        self.checksum = (self.checksum + batch_checksum(batch)) & MASK

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        item = f"{self.rows}:{self.checksum:x}".encode()

        async def ready() -> list[bytes]:
            return [item]

        return ready()


class BlackholeConnector(DeclaredConnector):
    """The sink ``blackhole``, which drops all rows."""

    name = "blackhole"
    location = ()
    roles = ("sink",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        if OPTIONS.read_one(table.options, "changelog") == "retract":
            return ("append", "retract")
        return ("append", "upsert", "retract")

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def writer(self, table: TableInfo) -> BlackholeWriter:
        return BlackholeWriter()
