"""What a catalog is to a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

#: Database → its properties and its tables: name → CREATE TABLE statement.
Properties = Mapping[str, str]


class StoredCatalog(ABC):
    """Databases and tables. A table is the text of its CREATE TABLE statement, so that its form is SQL's own.

    Names are checked by the caller's view of things: a change carries what the caller saw, and raises
    ``ChangedError`` when that is no longer so.
    """

    #: The database that is current when the catalog is used.
    default_database = "default"

    @abstractmethod
    def databases(self) -> Sequence[str]:
        """The names of the databases, sorted."""

    @abstractmethod
    def create_database(self, name: str, properties: Properties) -> None:
        """Make a database. ChangedError if it is there."""

    @abstractmethod
    def alter_database(self, name: str, properties: Properties) -> None:
        """Add or change properties. ChangedError if there is no such database."""

    @abstractmethod
    def drop_database(self, name: str, *, cascade: bool) -> None:
        """Drop a database. ChangedError if it is not there, or has tables and ``cascade`` is False."""

    @abstractmethod
    def tables(self, database: str) -> Sequence[str]:
        """The names of a database's tables, sorted."""

    @abstractmethod
    def table(self, database: str, name: str) -> str | None:
        """A table's statement; None: there is no such table."""

    @abstractmethod
    def put_table(self, database: str, name: str, statement: str, *, seen: str | None) -> None:
        """Make a table (``seen`` None), or put another statement in the place of ``seen``. ChangedError otherwise."""

    @abstractmethod
    def drop_table(self, database: str, name: str) -> bool:
        """Drop a table; False: there was none."""

    def rename_table(self, database: str, name: str, new: str) -> None:
        """Give a table another name. ChangedError if it is not there, or the name is taken."""
        statement = self.table(database, name)
        if statement is None:
            raise ChangedError(f"there is no table '{name}'")
        self.put_table(database, new, statement, seen=None)
        self.drop_table(database, name)

    def given_options(self, database: str, name: str) -> Mapping[str, str]:
        """Options that tables made here have without saying so."""
        return {}


class ChangedError(Exception):
    """What the caller saw is no longer so; the text says what is."""
