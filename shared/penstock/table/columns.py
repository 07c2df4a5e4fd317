"""``Column`` and its kinds: what a ``ResolvedSchema`` says of each column, and a table's primary key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.table.types import DataType


@dataclass(frozen=True)
class Column:
    """A column of a table. ``physical``, ``computed`` and ``metadata`` make the kinds."""

    name: str
    data_type: DataType
    comment: str | None = None

    @staticmethod
    def physical(name: str, data_type: DataType) -> PhysicalColumn:
        """A column that the connector reads and writes."""
        return PhysicalColumn(name, data_type)

    @staticmethod
    def computed(name: str, resolved_expression: Any, data_type: DataType) -> ComputedColumn:
        """A column that is computed from others: ``resolved_expression`` is SQL text or an expression."""
        return ComputedColumn(name, data_type, expression=str(resolved_expression))

    @staticmethod
    def metadata(
        name: str, data_type: DataType, metadata_key: str | None = None, is_virtual: bool = False
    ) -> MetadataColumn:
        """A column of the connector's metadata. ``is_virtual``: INSERT does not write it."""
        return MetadataColumn(name, data_type, metadata_key=metadata_key, virtual=is_virtual)

    def with_comment(self, comment: str | None) -> Any:
        """The same column with a comment."""
        return replace(self, comment=comment)

    def is_physical(self) -> bool:
        """Whether the connector reads and writes the column."""
        return False

    def is_persisted(self) -> bool:
        """Whether INSERT writes the column."""
        return False

    def get_data_type(self) -> DataType:
        """The column's type."""
        return self.data_type

    def get_name(self) -> str:
        """The column's name."""
        return self.name

    def get_comment(self) -> str | None:
        """The column's comment."""
        return self.comment

    def explain_extras(self) -> str | None:
        """What the declaration says behind the type."""
        return None

    def as_summary_string(self) -> str:
        """The column as a declaration: name, type and what follows."""
        extras = self.explain_extras()
        return f"`{self.name}` {self.data_type}" + (f" {extras}" if extras else "")

    def copy(self, new_type: DataType) -> Any:
        """The same column with another type."""
        return replace(self, data_type=new_type)

    def rename(self, new_name: str) -> Any:
        """The same column with another name."""
        return replace(self, name=new_name)

    def __str__(self) -> str:
        return self.as_summary_string()


@dataclass(frozen=True)
class PhysicalColumn(Column):
    """A column that the connector reads and writes."""

    def is_physical(self) -> bool:
        return True

    def is_persisted(self) -> bool:
        return True


@dataclass(frozen=True)
class ComputedColumn(Column):
    """A column that is computed from others. ``expression``: SQL text."""

    expression: str = ""

    def get_expression(self) -> str:
        """The expression as SQL text."""
        return self.expression

    def explain_extras(self) -> str:
        return f"AS {self.expression}"


@dataclass(frozen=True)
class MetadataColumn(Column):
    """A column of the connector's metadata."""

    metadata_key: str | None = None
    virtual: bool = False

    def is_virtual(self) -> bool:
        """Whether INSERT does not write the column."""
        return self.virtual

    def is_persisted(self) -> bool:
        return not self.virtual

    def get_metadata_key(self) -> str | None:
        """The column's name in the connector; None if it is that of the column."""
        return self.metadata_key

    def explain_extras(self) -> str:
        key = f" FROM '{self.metadata_key}'" if self.metadata_key else ""
        return f"METADATA{key}" + (" VIRTUAL" if self.virtual else "")
