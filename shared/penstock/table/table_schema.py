"""``TableSchema``: Flink's older way to name the columns of a table. ``Schema`` declares columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SpecError
from penstock.table.results import ResolvedSchema
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.table.types import DataType


class TableSchema(ResolvedSchema):
    """Names and types of columns, in order.

    ``field_names``: names; ``data_types``: as many types.

    Raises:
        SpecError: There are not as many types as names, or a name comes twice.
    """

    def __init__(self, field_names: Sequence[str] = (), data_types: Sequence[DataType] = ()) -> None:
        if len(field_names) != len(data_types) or len(set(field_names)) != len(field_names):
            raise SpecError(
                "names and types of a table's columns do not fit",
                expected="a type for each name, and each name once",
                got=f"names {', '.join(field_names) or 'none'}; {len(data_types)} types",
            )
        fields = zip(field_names, data_types, strict=True)
        super().__init__(t.Schema(tuple(t.Field(name, of.logical) for name, of in fields)))

    def copy(self) -> TableSchema:
        """A schema of the same columns."""
        return TableSchema(self.get_field_names(), self.get_field_data_types())

    def get_field_data_type(self, field: int | str) -> DataType | None:
        if not isinstance(field, (int, str)):
            raise TypeError(f"Expected field index or field name, got {type(field)}")
        return super().get_field_data_type(field)

    def __repr__(self) -> str:
        return "".join(["root\n", *(f" |-- {f.name}: {f.type}\n" for f in self.logical.fields)])

    @classmethod
    def builder(cls) -> TableSchema.Builder:
        """A builder of a schema."""
        return TableSchema.Builder()

    class Builder:
        """Builds a ``TableSchema``."""

        def __init__(self) -> None:
            self._fields: list[tuple[str, DataType]] = []

        def field(self, name: str, data_type: DataType) -> TableSchema.Builder:
            """Add the column ``name`` of ``data_type``."""
            self._fields.append((name, data_type))
            return self

        def build(self) -> TableSchema:
            """The schema."""
            return TableSchema([n for n, _ in self._fields], [of for _, of in self._fields])
