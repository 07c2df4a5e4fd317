"""The common part of simple connectors: an option set, roles, and a fixed set of sink modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import Connector, SourceMode, TableInfo
from penstock.errors import ConnectorError
from penstock.formats import get_format
from penstock.options import OptionSet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal


class DeclaredConnector(Connector):
    """A connector whose options are an ``OptionSet`` and whose roles are listed."""

    roles: tuple[str, ...] = ("source", "sink")
    #: Whether rows are encoded in a ``'format'``, whose options are among the table's.
    takes_format: bool = False

    def __init__(self, options: OptionSet) -> None:
        self.option_set = options
        self.options = options.describe()

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        """Check the role and the options of ``table``. ``role``: ``source`` or ``sink``."""
        self.check_role(role)
        self.option_set.check(table.options, role=role, prefixes=self._format_prefixes(table))
        if role == "sink" and table.format and self._changelog(table):
            self._check_writing(table)

    def _check_writing(self, table: TableInfo) -> None:
        """ConnectorError for options with which the table's changelog format cannot write: making an encoder finds them."""
        get_format(table.format, where=self.option_set.owner).encoder(table.schema, table.options)

    def _format_prefixes(self, table: TableInfo) -> tuple[str, ...]:
        """The prefix of the options of the table's format, also of a format from another package. The format
        checks these options itself."""
        if not self.takes_format or not table.format:
            return ()
        return (f"{get_format(table.format, where=self.option_set.owner).name}.",)

    def source_mode(self, table: TableInfo) -> SourceMode:
        """``retract`` for a changelog format, else ``append``."""
        return "retract" if self._changelog(table) else "append"

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        """A changelog format also takes updates, with their old rows."""
        return ("append", "retract") if self._changelog(table) else ("append",)

    def _changelog(self, table: TableInfo) -> bool:
        name = table.options.get("value.format") or table.options.get("format")
        return (
            self.takes_format and name is not None and get_format(name, where=self.option_set.owner).changelog
        )

    def nested_projection_of(self, table: TableInfo) -> bool:
        """Not for messages whose fields are known by their order alone."""
        name = table.options.get("value.format") or table.options.get("format")
        positional = name is not None and get_format(name, where=self.option_set.owner).positional
        return self.nested_projection and not (self.takes_format and positional)

    def check_role(self, role: str) -> None:
        """ConnectorError if the connector cannot be a ``role``."""
        if role not in self.roles:
            raise ConnectorError(
                f"connector '{self.name}' cannot be a {role}",
                expected=f"a table used as {' or '.join(self.roles)}",
                got=f"a table used as {role}",
                where=f"connector '{self.name}'",
                remedy="INSERT INTO it" if role == "source" else "read from it, or use another connector",
            )
