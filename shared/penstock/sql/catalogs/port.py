"""The port of catalogs that outlive a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

#: The properties of a database: key → value.
Properties = Mapping[str, str]


class StoredCatalog(ABC):
    """Databases and tables. A table is the text of its CREATE TABLE statement, so that its form is SQL's own.

    A change is decided on the state that the caller saw. It raises ``ChangedError`` if another session has
    changed that state since.
    """

    #: The database that is current when the catalog is used.
    default_database = "default"

    @abstractmethod
    def databases(self) -> Sequence[str]:
        """The names of the databases, sorted."""

    @abstractmethod
    def properties(self, database: str) -> Properties:
        """A database's properties, its comment among them as ``comment``."""

    @abstractmethod
    def create_database(self, name: str, properties: Properties) -> None:
        """Make a database. Raises ChangedError if it exists."""

    @abstractmethod
    def alter_database(self, name: str, properties: Properties) -> None:
        """Add or change properties. Raises ChangedError if there is no such database."""

    @abstractmethod
    def drop_database(self, name: str, *, cascade: bool) -> None:
        """Drop a database. Raises ChangedError if it does not exist, or has
        tables and ``cascade`` is False."""

    @abstractmethod
    def tables(self, database: str) -> Sequence[str]:
        """The names of a database's tables, sorted."""

    @abstractmethod
    def table(self, database: str, name: str) -> str | None:
        """A table's statement; None if there is no such table."""

    @abstractmethod
    def put_table(self, database: str, name: str, statement: str, *, seen: str | None) -> None:
        """Make a table, or replace its statement ``seen``. Raises ChangedError if the table has another
        statement than ``seen``; None means that there is no such table."""

    @abstractmethod
    def drop_table(self, database: str, name: str) -> bool:
        """Drop a table. Returns False if there is no such table."""

    def rename_table(self, database: str, name: str, new: str) -> None:
        """Give a table another name. Raises ChangedError if the table does
        not exist, or the name is taken."""
        statement = self.table(database, name)
        if statement is None:
            raise ChangedError(f"there is no table '{name}'")
        self.put_table(database, new, statement, seen=None)
        self.drop_table(database, name)

    def located(self, parts: Sequence[str], current: str) -> tuple[str, str] | None:
        """(database, table) of a name without its catalog, where a table's own name may have several parts; None: it has
        one. ``current``: the database of a name without one."""
        return None

    def given_options(self, database: str, name: str) -> Mapping[str, str]:
        """Options that the catalog gives to its tables; their statements need not name them."""
        return {}


class ChangedError(Exception):
    """The catalog is no longer in the state that the caller saw. The text says what has changed."""
