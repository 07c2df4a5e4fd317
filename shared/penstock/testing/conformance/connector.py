"""The common part of the kits of sources, sinks and lookups: a table of a connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import TableInfo
from penstock.testing.conformance.base import Conformance, refusal
from penstock.testing.conformance.driving import Driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.connectors.base import Connector
    from penstock.types.logical import Schema


class ConnectorConformance(Conformance):
    """The base of the kits whose author gives ``connector``, ``schema`` and ``options``."""

    #: The table's columns.
    schema: Schema
    #: The role in which the table is validated.
    role: Literal["source", "sink"] = "source"
    #: The number of subtasks among which the table is split.
    parallelism = 1

    def connector(self) -> Connector:
        """A new object of the connector."""
        raise NotImplementedError

    def options(self) -> Mapping[str, str]:
        """The options of the table, ``connector`` among them."""
        raise NotImplementedError

    def test_an_unknown_option_is_refused_by_name(self) -> None:
        table = self._table({**self.options(), "no-such-option": "1"})
        said = refusal(
            lambda: self.connector().validate(table, role=self.role), "validate accepts 'no-such-option'"
        )
        assert "no-such-option" in said, f"the error does not name the option: {said}"

    def _table(self, options: Mapping[str, str] | None = None) -> TableInfo:
        options = dict(self.options() if options is None else options)
        return TableInfo(self.schema, options, options.get("format"))

    def _drive(
        self, check: Callable[[Driver], Awaitable[None]], options: Mapping[str, str] | None = None
    ) -> None:
        driver = Driver(self.connector(), self._table(options), self.parallelism)

        async def driven() -> None:
            await check(driver)

        try:
            self.within_patience(driven())
        finally:
            driver.helper.close()
