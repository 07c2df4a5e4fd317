"""Makes an Iceberg table that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.iceberg.catalog import place, reached, table_name
from penstock.errors import ExternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog


#: Options that become properties of a new table.
_PROPERTIES = ("format-version", "write.upsert.enabled")


def create(
    catalog: Catalog,
    options: Mapping[str, str],
    declared: pa.Schema,
    partitions: Sequence[str],
    keys: Sequence[str] = (),
) -> None:
    """Create the table unless it exists, with identity partitions of the columns ``partitions``; ``keys``: the columns
    that identify a row."""
    from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

    name = table_name(options)
    properties = {key: options[key] for key in _PROPERTIES if key in options}
    if reached(lambda: catalog.table_exists(name), place(options)):
        return
    try:
        reached(lambda: catalog.create_namespace(name[:-1]), place(options))
    except NamespaceAlreadyExistsError:
        pass  # the usual case
    except ExternalError:
        # A SQL catalog says of a namespace that another subtask made meanwhile only that a row is there twice.
        if not reached(lambda: catalog.namespace_exists(name[:-1]), place(options)):
            raise
    try:
        if not partitions and not keys:
            reached(lambda: catalog.create_table(name, declared, properties=properties), place(options))
            return
        transaction = reached(
            lambda: catalog.create_table_transaction(name, declared, properties=properties), place(options)
        )
        if keys:
            with transaction.update_schema() as schema:
                schema.set_identifier_fields(*keys)
        if partitions:
            with transaction.update_spec() as spec:
                for column in partitions:
                    spec.add_identity(column)
        reached(transaction.commit_transaction, place(options))
    except TableAlreadyExistsError:
        pass  # another subtask or job has created the table
    except ExternalError:
        if not reached(lambda: catalog.table_exists(name), place(options)):
            raise
