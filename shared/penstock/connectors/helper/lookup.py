"""The proxy of a lookup source that runs in a helper process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import LookupSource
from penstock.connectors.helper.context import report
from penstock.connectors.helper.messages import Answer, Bad, Failed, Metrics, ToSlot, decoded, encoded
from penstock.connectors.helper.process import HelperProcess, as_error, opening
from penstock.errors import InternalError

if TYPE_CHECKING:
    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types.batch import Batch


class HelperLookup(LookupSource):
    """Sends the keys to the helper process as a batch; the rows come back as a batch."""

    def __init__(self, connector: str, table: TableInfo) -> None:
        self._connector = connector
        self._table = table
        self._process = HelperProcess(f"connector '{connector}'", self._received)

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        await self._process.start(opening("lookup", self._connector, self._table, ctx), ctx)

    async def lookup(self, keys: Batch) -> Batch:
        fields = [(field.name, field.type) for field in keys.schema.fields]
        return _rows(await self._process.call("lookup", encoded(keys), schema=type(keys.schema).of(*fields)))

    async def load(self) -> Batch:
        return _rows(await self._process.call("load"))

    async def close(self) -> None:
        await self._process.close()

    def _received(self, message: ToSlot, _: memoryview) -> None:
        match message:
            case Bad() | Metrics():
                report(message, self.ctx)
            case Failed():
                self._process.fail(as_error(message, self._process.what))
            case _:
                raise InternalError("a message that no lookup source sends", got=repr(message))


def _rows(answered: tuple[Answer, memoryview]) -> Batch:
    answer, payload = answered
    assert answer.schema is not None
    return decoded(answer.schema, payload)
