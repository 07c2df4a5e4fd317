"""pyiceberg's catalogs, opened by a table's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.iceberg.settings import _SINGLE, PASSED_ON, catalog_type
from penstock.connectors.lakehouse.schema import need_library
from penstock.connectors.unanswered import failed
from penstock.errors import ConnectorError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_JDBC = "jdbc:"
_SQLITE = "jdbc:sqlite:"


def place(options: Mapping[str, str]) -> str:
    """The table, for errors."""
    name = f"{options.get('catalog-database', 'default')}.{options.get('catalog-table', '?')}"
    return f"connector 'iceberg', table '{name}' of the catalog at {options.get('uri', '?')}"


def database_uri(uri: str) -> str:
    """A JDBC URL of SQLite in SQLAlchemy's form; another URL without the prefix ``jdbc:``."""
    return "sqlite:///" + uri.removeprefix(_SQLITE) if uri.startswith(_SQLITE) else uri.removeprefix(_JDBC)


def open_catalog(name: str, options: Mapping[str, str]) -> Catalog:
    """The catalog of ``options`` (``CATALOG_OPTIONS``). ExternalError if it does not answer."""
    need_library("pyiceberg", "iceberg", "Apache Iceberg", "connector 'iceberg'")
    from pyiceberg.catalog import load_catalog

    kind = catalog_type(options.get("catalog-type", "rest"))
    sql = kind in ("sql", "jdbc")
    passed = {k: v for k, v in options.items() if k.startswith(PASSED_ON) or k in _SINGLE}
    if "warehouse" in options:
        passed["warehouse"] = options["warehouse"]
    uri = database_uri(options["uri"]) if sql else options["uri"]
    return reached(
        lambda: load_catalog(name, type="sql" if sql else "rest", uri=uri, **passed),
        f"the catalog at {options['uri']}",
    )


def table_name(options: Mapping[str, str]) -> tuple[str, ...]:
    """The identifier of a table."""
    return (*options.get("catalog-database", "default").split("."), options["catalog-table"])


def load(options: Mapping[str, str]) -> Table:
    """The table. ConnectorError if there is none."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    catalog = open_catalog(options.get("catalog-name", "default"), options)
    try:
        # Reads of the table's metadata and files do not need the catalog.
        return reached(lambda: catalog.load_table(table_name(options)), place(options))
    except (NoSuchTableError, NoSuchNamespaceError):
        raise ConnectorError(
            "there is no such Iceberg table",
            expected=".".join(table_name(options)),
            got="no table of that name",
            where=place(options),
            remedy="check 'catalog-name', 'catalog-database' and 'catalog-table'; a sink makes its table, a source "
            "does not",
        ) from None
    finally:
        catalog.close()


def reached(call: Callable[[], Any], where: str) -> Any:
    """The result of ``call``. Raises ExternalError for errors of the catalog or the file system."""
    from pyiceberg.exceptions import (
        CommitFailedException,
        ForbiddenError,
        NamespaceAlreadyExistsError,
        NamespaceNotEmptyError,
        NoSuchNamespaceError,
        NoSuchTableError,
        TableAlreadyExistsError,
        UnauthorizedError,
    )

    try:
        return call()
    except (
        CommitFailedException,
        NamespaceAlreadyExistsError,
        NamespaceNotEmptyError,
        NoSuchNamespaceError,
        NoSuchTableError,
        TableAlreadyExistsError,
        PenstockError,
    ):
        raise
    except (UnauthorizedError, ForbiddenError) as err:
        raise ConnectorError(
            "the Iceberg catalog refuses the credentials",
            got=str(err),
            where=where,
            remedy="check 'credential' or 'token'",
        ) from None
    except Exception as err:  # errors of requests, SQLAlchemy and Arrow's file systems share no base class
        raise failed(
            "an Iceberg catalog or its files cannot be reached",
            err,
            where,
            away=_is_away(err),
            remedy="check 'uri', 'warehouse' and the credentials",
        ) from err


def _is_away(err: Exception) -> bool:
    """Whether the catalog does not answer, or asks for another try."""
    from pyiceberg.exceptions import (
        CommitStateUnknownException,
        ServerError,
        ServiceUnavailableError,
        TooManyRequestsError,
    )
    from requests import exceptions as http
    from sqlalchemy import exc as sql

    return isinstance(
        err,
        (
            CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError,
            http.ConnectionError, http.Timeout, sql.OperationalError, sql.InterfaceError,
        ),
    )  # fmt: skip
