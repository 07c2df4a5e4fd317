"""Options and checks of the connector ``faker``, with the option keys of flink-faker."""

from __future__ import annotations

from typing import Literal

from penstock.connectors.away import need_package
from penstock.connectors.base import SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.faker.settings import OPTIONS, OWNER
from penstock.connectors.paced import SharesEnumerator
from penstock.connectors.simple import DeclaredConnector


class FakerConnector(DeclaredConnector):
    """The source ``faker``, whose values are made by the Python library Faker."""

    name = "faker"
    location = ()
    roles = ("source",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        need_package("faker", "faker", "faker", OWNER)
        from penstock.connectors.faker.fields import makers_of

        # Making one value of every column finds expressions whose values do not fit the column's type.
        makers = makers_of(table)
        for maker in makers:
            maker.column(OPTIONS.read_one(table.options, "seed"), [0, 1])

    def is_bounded(self, table: TableInfo) -> bool:
        return OPTIONS.read_one(table.options, "number-of-rows") is not None

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        return SharesEnumerator(OPTIONS.read_one(table.options, "number-of-rows"))

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.faker.source import FakerReader

        return FakerReader(table)
