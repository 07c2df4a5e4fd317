"""``ObjectPath`` and ``ObjectIdentifier``: names of tables, views and functions within a catalog, and across catalogs."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import SpecError


@dataclass(frozen=True, order=True)
class ObjectPath:
    """A table, view or function of a catalog. Paths are ordered by database, then by name."""

    database_name: str
    object_name: str

    def get_database_name(self) -> str:
        """The database's name."""
        return self.database_name

    def get_object_name(self) -> str:
        """The object's name."""
        return self.object_name

    def get_full_name(self) -> str:
        """``database.object``."""
        return f"{self.database_name}.{self.object_name}"

    def compare_to(self, other: ObjectPath) -> int:
        """Below 0, 0 or above 0: this path comes before, is, or comes behind ``other``."""
        return (self > other) - (self < other)

    def __str__(self) -> str:
        return self.get_full_name()

    @staticmethod
    def from_string(full_name: str) -> ObjectPath:
        """The path ``database.object``.

        Raises:
            SpecError: The text has not exactly two parts.
        """
        parts = full_name.split(".")
        if len(parts) != 2 or not all(parts):
            raise SpecError("not a path", expected="database.object", got=repr(full_name))
        return ObjectPath(*parts)


@dataclass(frozen=True)
class ObjectIdentifier:
    """A table, view or function, named across catalogs. ``of`` makes one."""

    catalog_name: str
    database_name: str
    object_name: str

    @staticmethod
    def of(catalog_name: str, database_name: str, object_name: str) -> ObjectIdentifier:
        """The identifier of an object."""
        return ObjectIdentifier(catalog_name, database_name, object_name)

    def get_catalog_name(self) -> str:
        """The catalog's name."""
        return self.catalog_name

    def get_database_name(self) -> str:
        """The database's name."""
        return self.database_name

    def get_object_name(self) -> str:
        """The object's name."""
        return self.object_name

    def to_object_path(self) -> ObjectPath:
        """The path within the catalog."""
        return ObjectPath(self.database_name, self.object_name)

    def to_list(self) -> list[str]:
        """Catalog, database and object."""
        return [self.catalog_name, self.database_name, self.object_name]

    def as_summary_string(self) -> str:
        """``catalog.database.object``."""
        return ".".join(self.to_list())

    def as_serializable_string(self) -> str:
        """The name as SQL writes it, with backticks."""
        return ".".join("`" + part.replace("`", "``") + "`" for part in self.to_list())

    def __str__(self) -> str:
        return self.as_serializable_string()
