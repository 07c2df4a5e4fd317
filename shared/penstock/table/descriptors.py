"""``Schema``, ``TableDescriptor`` and ``FormatDescriptor``: with them a program builds a CREATE TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError, UnsupportedError
from penstock.redaction import shown_options
from penstock.table.types import logical_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.catalog import Table
    from penstock.table.results import ResolvedSchema

#: Key in an expression's meta: the SQL text that the program gave.
SQL_TEXT = "sql_text"


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(text: Any) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _sql(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    text = getattr(getattr(value, "_node", None), "meta", {}).get(SQL_TEXT)
    if text is not None:
        return str(text)
    raise UnsupportedError(
        f"{what} as an expression object",
        expected="its text in SQL, or call_sql(text)",
        got=str(value),
        remedy="write it as text: \"ts - INTERVAL '5' SECOND\"",
    )


class Schema:
    """The columns, watermark and primary key of a table.

    ``new_builder`` gives a builder for a schema. ``lines`` are the lines between the parentheses of CREATE
    TABLE.
    """

    class Builder:
        """Builds a ``Schema``."""

        def __init__(self) -> None:
            self._lines: list[str] = []
            self._fields: list[tuple[str, t.LogicalType]] = []
            self._end: list[str] = []
            #: A line that Flink shows in another way → what it shows.
            self._shown: dict[str, str] = {}

        def _line(self, lines: list[str], before: str, text: str, resolved: bool = False) -> None:
            lines.append(before + text)
            if not resolved:
                self._shown[before + text] = f"{before}[{text}]"

        def column(self, column_name: str, data_type: Any) -> Schema.Builder:
            """Add a physical column."""
            logical = logical_type(data_type, f"of column '{column_name}'")
            self._fields.append((column_name, logical))
            if isinstance(data_type, str):
                self._line(self._lines, f"{_name(column_name)} ", data_type)
            else:
                self._line(self._lines, f"{_name(column_name)} ", str(logical), resolved=True)
            return self

        def column_by_expression(self, column_name: str, expr: Any) -> Schema.Builder:
            """Add a column that is computed from others. ``expr``: SQL text."""
            self._line(self._lines, f"{_name(column_name)} AS ", _sql(expr, "column_by_expression"))
            return self

        def column_by_metadata(
            self, column_name: str, data_type: Any, metadata_key: str | None = None, is_virtual: bool = False
        ) -> Schema.Builder:
            """Add a metadata column, which the connector gives.

            ``metadata_key``: the column's name in the connector; None for ``column_name``. ``is_virtual``:
            INSERT does not write the column.
            """
            key = f" FROM {_quoted(metadata_key)}" if metadata_key else ""
            virtual = " VIRTUAL" if is_virtual else ""
            logical = logical_type(data_type, f"of column '{column_name}'")
            self._lines.append(f"{_name(column_name)} {logical} METADATA{key}{virtual}")
            return self

        def watermark(self, column_name: str, watermark_expr: Any) -> Schema.Builder:
            """Declare the event-time column and its watermark. ``watermark_expr``: SQL text."""
            text = _sql(watermark_expr, "watermark")
            self._line(self._end, f"WATERMARK FOR {_name(column_name)} AS ", text)
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            """Declare the primary key. No two rows have the same values in its columns."""
            self._end.append(f"PRIMARY KEY ({', '.join(map(_name, column_names))}) NOT ENFORCED")
            return self

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Schema.Builder:
            """Declare the primary key, as ``primary_key`` does, and name it."""
            self._end.append(
                f"CONSTRAINT {_name(constraint_name)} PRIMARY KEY ({', '.join(map(_name, column_names))}) NOT ENFORCED"
            )
            return self

        def from_resolved_schema(self, resolved_schema: ResolvedSchema) -> Schema.Builder:
            """Add the columns of a table that is there."""
            return self.from_fields(
                resolved_schema.get_column_names(), resolved_schema.get_column_data_types()
            )

        def from_schema(self, origin_schema: Schema) -> Schema.Builder:
            """Add the columns, watermark and primary key of another schema."""
            self._lines += origin_schema.columns
            self._end += origin_schema.constraints
            self._fields += origin_schema.fields
            self._shown.update(origin_schema.shown)
            return self

        def from_fields(self, field_names: Sequence[str], field_data_types: Sequence[Any]) -> Schema.Builder:
            """Add columns by their names and types."""
            for name, type_ in zip(field_names, field_data_types, strict=True):
                self.column(name, type_)
            return self

        def from_row_data_type(self, data_type: Any) -> Schema.Builder:
            """Add the fields of a ROW as columns."""
            row = logical_type(data_type)
            if not isinstance(row, t.RowType):
                raise SpecError("no ROW", expected="DataTypes.ROW(…)", got=str(row))
            for field in row.fields:
                self.column(field.name, field.type)
            return self

        def build(self) -> Schema:
            """The schema."""
            keys_last = sorted(self._end, key=lambda line: not line.startswith("WATERMARK"))
            return Schema(self._lines, keys_last, self._fields, self._shown)

    def __init__(
        self,
        columns: Sequence[str],
        constraints: Sequence[str],
        fields: Sequence[tuple[str, t.LogicalType]],
        shown: Mapping[str, str] | None = None,
    ) -> None:
        self.columns = list(columns)
        self.constraints = list(constraints)
        self.fields = list(fields)
        self.shown = dict(shown or {})

    @staticmethod
    def of_table(table: Table) -> Schema:
        """Columns, watermark and primary key of a declared table."""
        builder = Schema.new_builder()
        for column in table.columns:
            if column.kind == "physical":
                assert column.type is not None
                builder.column(column.name, column.type)
            elif column.kind == "computed":
                builder.column_by_expression(column.name, column.expression_text)
            else:
                assert column.type is not None
                builder.column_by_metadata(column.name, column.type, column.metadata_key, column.virtual)
        if table.watermark_clause is not None:
            builder.watermark(".".join(table.watermark_clause.parts), table.watermark_clause.text)
        if table.primary_key:
            builder.primary_key(*table.primary_key)
        return builder.build()

    @staticmethod
    def new_builder() -> Schema.Builder:
        """A builder without columns."""
        return Schema.Builder()

    @property
    def lines(self) -> list[str]:
        return [*self.columns, *self.constraints]

    def declaration(self) -> str:
        """The lines with the parentheses around them."""
        return "(\n  " + ",\n  ".join(self.lines) + "\n)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(tuple(self.lines))

    def __str__(self) -> str:
        return "(\n  " + ",\n  ".join(self.shown.get(line, line) for line in self.lines) + "\n)"

    __repr__ = __str__


class FormatDescriptor:
    """A format and its options. ``for_format`` gives a builder."""

    class Builder:
        """Builds a ``FormatDescriptor``."""

        def __init__(self, format: str) -> None:
            self._format = format
            self._options: dict[str, str] = {}

        def option(self, key: str, value: Any) -> FormatDescriptor.Builder:
            """Set an option of the format. ``key`` does not begin with the format's name."""
            self._options[str(key)] = _text(value)
            return self

        def build(self) -> FormatDescriptor:
            """The descriptor."""
            return FormatDescriptor(self._format, self._options)

    def __init__(self, format: str, options: Mapping[str, str]) -> None:
        self._format = format
        self._options = dict(options)

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:
        """A builder for ``format``: json, csv …"""
        return FormatDescriptor.Builder(format)

    def get_format(self) -> str:
        """The format's name."""
        return self._format

    def get_options(self) -> dict[str, str]:
        """The format's options."""
        return dict(self._options)

    def __str__(self) -> str:
        return f"{self._format}[{{{', '.join(f'{k}={v}' for k, v in self._options.items())}}}]"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class TableDescriptor:
    """A table's schema, connector and options. ``for_connector`` gives a builder."""

    class Builder:
        """Builds a ``TableDescriptor``."""

        def __init__(self) -> None:
            self._schema: Schema | None = None
            self._options: dict[str, str] = {}
            self._keys: list[str] = []
            self._comment: str | None = None

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            """Set the schema."""
            self._schema = schema
            return self

        def option(self, key: str, value: Any) -> TableDescriptor.Builder:
            """Set an option of WITH."""
            self._options[str(key)] = _text(value)
            return self

        def format(self, format: Any, format_option: str | None = None) -> TableDescriptor.Builder:
            """Set the format: a name or a ``FormatDescriptor``.

            ``format_option``: the option that names the format; None for ``format``.
            """
            key = str(format_option or "format")
            if isinstance(format, FormatDescriptor):
                name, options = format.get_format(), format.get_options()
            else:
                name, options = str(format), {}
            prefix = key.removesuffix("format") + name
            self._options[key] = name
            self._options.update({f"{prefix}.{k}": v for k, v in options.items()})
            return self

        def partitioned_by(self, *partition_keys: str) -> TableDescriptor.Builder:
            """Set the columns of PARTITIONED BY."""
            self._keys += partition_keys
            return self

        def comment(self, comment: str) -> TableDescriptor.Builder:
            """Set the comment."""
            self._comment = comment
            return self

        def build(self) -> TableDescriptor:
            """The descriptor."""
            return TableDescriptor(self._schema, self._options, self._keys, self._comment)

    def __init__(
        self, schema: Schema | None, options: Mapping[str, str], keys: Sequence[str], comment: str | None
    ) -> None:
        self._schema = schema
        self._options = dict(options)
        self._keys = list(keys)
        self._comment = comment

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """A builder for a table of ``connector``."""
        return TableDescriptor.Builder().option("connector", connector)

    def get_schema(self) -> Schema | None:
        """The schema; None if none was set."""
        return self._schema

    def get_options(self) -> dict[str, str]:
        """Options of WITH."""
        return dict(self._options)

    def get_partition_keys(self) -> list[str]:
        """Columns of PARTITIONED BY."""
        return list(self._keys)

    def get_comment(self) -> str | None:
        """The comment."""
        return self._comment

    def _behind(self, schema: str, options: Mapping[str, str]) -> list[str]:
        """The lines of the declaration behind the table's name."""
        comment = [f"COMMENT {_quoted(self._comment)}"] if self._comment is not None else []
        keys = [f"PARTITIONED BY ({', '.join(map(_name, self._keys))})"] if self._keys else []
        pairs = ",\n  ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in options.items())
        return [schema, *comment, *keys, f"WITH (\n  {pairs}\n)"]

    def __str__(self) -> str:
        # An option may hold a password.
        shown = dict(sorted(shown_options(self._options).items()))
        return "\n".join(self._behind("" if self._schema is None else str(self._schema), shown))

    def statement(self, path: str, *, temporary: bool, if_not_exists: bool = False) -> str:
        """The CREATE TABLE statement of this table. ``path``: its name, in backticks where SQL needs them.

        Raises:
            SpecError: The table has no schema.
        """
        if self._schema is None:
            raise SpecError(
                f"table {path} has no columns", expected="schema(Schema.new_builder()…)", got="no schema"
            )
        kind = f"{'TEMPORARY ' if temporary else ''}TABLE {'IF NOT EXISTS ' if if_not_exists else ''}"
        return "\n".join([f"CREATE {kind}{path}", *self._behind(self._schema.declaration(), self._options)])
