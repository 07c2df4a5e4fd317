"""``OutputTag``: names a side output. ``penstock.api`` exports it."""

from __future__ import annotations

from penstock.columnar.annotations import as_type
from penstock.types import logical as t


def schema_of(type_: t.LogicalType) -> t.Schema:
    """The schema of a stream of ``type_``: a ROW's fields, else the one column ``value``."""
    if isinstance(type_, t.RowType):
        return t.Schema(type_.fields)
    return t.Schema((t.Field("value", type_),))


def type_of(schema: t.Schema) -> t.LogicalType:
    """The record type of a stream: the inverse of ``schema_of``."""
    if (
        len(schema.fields) == 1
        and schema.fields[0].name == "value"
        and not (schema.fields[0].row or schema.fields[0].record)
    ):
        return schema.fields[0].type
    return t.RowType(schema.fields)


class OutputTag:
    """A side output: ``yield tag, value`` in a process function sends ``value`` to it.

    ``tag_id`` is its name, unique in the function. ``type_info`` is the type of its records (``Types.…``);
    None: pickled.
    """

    __slots__ = ("tag_id", "type")

    def __init__(self, tag_id: str, type_info: t.LogicalType | None = None) -> None:
        self.tag_id = tag_id
        self.type: t.LogicalType = (as_type(type_info) if type_info is not None else None) or t.RawType()

    @property
    def schema(self) -> t.Schema:
        """The names and types of the columns."""
        return schema_of(self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __deepcopy__(self, _: dict[int, object]) -> OutputTag:
        return self  # a tag never changes

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type})"
