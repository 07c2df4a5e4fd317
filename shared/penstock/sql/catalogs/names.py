"""The names that a session knows: those of its own catalog, and those of the catalogs of CREATE CATALOG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.connectors.lakehouse.schema import declared_arrow
from penstock.errors import SqlError, UnsupportedError, nearest
from penstock.redaction import hidden_note, shown_options
from penstock.sql.catalogs.opening import CatalogStore, open_catalog
from penstock.sql.catalogs.port import ChangedError, StoredCatalog

if TYPE_CHECKING:
    from penstock.sql.catalog import Table, View

T = TypeVar("T", "Table", "View")

#: The session's own catalog and database. Names in it have one part.
OWN_CATALOG, OWN_DATABASE = "default_catalog", "default_database"


class SessionCatalogs:
    """The catalogs that a session can name, and the current catalog and database."""

    def __init__(self, store: CatalogStore | None = None) -> None:
        self.store = store or CatalogStore(None)
        self.catalog, self.database = OWN_CATALOG, OWN_DATABASE
        self._opened: dict[str, StoredCatalog] = {}

    def names(self) -> list[str]:
        """The names of all catalogs, sorted."""
        return sorted({OWN_CATALOG, *self.store.names()})

    def known(self, name: str) -> bool:
        """Whether there is such a catalog."""
        return name == OWN_CATALOG or name in self._opened or self.store.get(name) is not None

    def opened(self, name: str, where: str) -> StoredCatalog:
        """The catalog ``name`` of the store. Raises SqlError if there is none."""
        if name not in self._opened:
            options = self.store.get(name)
            if options is None:
                raise self.unknown(name, where)
            self._opened[name] = open_catalog(name, options, where)
        return self._opened[name]

    def unknown(self, name: str, where: str) -> SqlError:
        """The error for a catalog that does not exist."""
        known = self.names()
        return SqlError(
            f"unknown catalog '{name}'",
            expected="one of " + ", ".join(known),
            got=repr(name),
            where=where,
            remedy=nearest(name, known) or f"CREATE CATALOG {name} WITH ('type' = …)",
        )

    def statement(self, name: str, where: str) -> str:
        """The text of SHOW CREATE CATALOG, in which a secret stands by its name; a password as plain text is hidden."""
        own = {"type": "generic_in_memory", "default-database": OWN_DATABASE} if name == OWN_CATALOG else None
        options = own or self.store.get(name)
        if options is None:
            raise self.unknown(name, where)
        shown = shown_options(options)
        texts = {k: "'" + v.replace("'", "''") + "'" for k, v in sorted(shown.items())}
        comment = texts.pop("comment", None)
        said = "" if comment is None else f"COMMENT {comment} "
        pairs = ",\n".join(f"  '{k}' = {text}" for k, text in texts.items())
        return f"{hidden_note(shown)}CREATE CATALOG `{name}` {said}WITH (\n{pairs}\n)"

    def create(self, name: str, options: Mapping[str, str], where: str) -> bool:
        """Declare a catalog. Returns False if there is a catalog of this name."""
        if self.known(name):
            return False
        made = open_catalog(name, options, where)
        made.databases()  # the statement fails if the catalog does not answer
        if not self.store.create(name, options):
            return False
        self._opened[name] = made
        return True

    def alter(self, name: str, options: Mapping[str, str], removed: Sequence[str], where: str) -> None:
        """Change or remove options of a catalog. Raises SqlError if there is no such catalog, or it would not open."""
        if name == OWN_CATALOG:
            raise SqlError(
                f"catalog '{name}' cannot be altered",
                expected="a catalog of CREATE CATALOG",
                got=repr(name),
                where=where,
                remedy="it has no options",
            )
        old = self.store.get(name)
        if old is None:
            raise self.unknown(name, where)
        for key in {*options, *removed}:
            if key == "type" or (key in removed and key not in old):
                raise SqlError(
                    f"option '{key}' of catalog '{name}' cannot be "
                    + ("reset" if key in removed else "changed"),
                    expected="one of "
                    + (", ".join(sorted(k for k in old if k != "type")) or "(it has no other)"),
                    got=repr(key),
                    where=where,
                    remedy="DROP CATALOG and CREATE CATALOG again" if key == "type" else "leave it out",
                )
        new = {k: v for k, v in {**old, **options}.items() if k not in removed}
        made = open_catalog(name, new, where)
        made.databases()  # the statement fails if the catalog does not answer
        self.store.replace(name, new)
        if new["type"] == "generic_in_memory" and name in self._opened:
            self._opened[name].default_database = made.default_database  # its tables are nowhere else
        else:
            self._opened[name] = made

    def drop(self, name: str, where: str) -> bool:
        """Drop a catalog's declaration. Returns False if there is no such catalog. Raises SqlError for the
        current catalog and for the session's own."""
        if name in (OWN_CATALOG, self.catalog):
            raise SqlError(
                f"catalog '{name}' cannot be dropped",
                expected="another one than the session's own and the current",
                got=repr(name),
                where=where,
                remedy=f"USE CATALOG {OWN_CATALOG}, then drop it",
            )
        self._opened.pop(name, None)
        return self.store.drop(name)

    def databases(self, catalog: str, where: str) -> list[str]:
        """The names of a catalog's databases."""
        if catalog == OWN_CATALOG:
            return [OWN_DATABASE]
        return list(self.opened(catalog, where).databases())

    def use_catalog(self, name: str, where: str) -> None:
        """Make a catalog current, with its default database."""
        self.database = OWN_DATABASE if name == OWN_CATALOG else self.opened(name, where).default_database
        self.catalog = name

    def database_path(self, text: str, where: str) -> tuple[str, str]:
        """(catalog, database) of ``database`` or ``catalog.database``. Raises
        SqlError if it does not exist."""
        catalog, separator, database = text.partition(".")
        if not separator or not self.known(catalog):
            catalog, database = self.catalog, text
        found = self.databases(catalog, where)
        if database not in found:
            raise SqlError(
                f"unknown database '{database}' in catalog '{catalog}'",
                expected="one of " + ", ".join(found) if found else "a database; it has none",
                got=repr(text),
                where=where,
                remedy=nearest(database, found) or "CREATE DATABASE makes one",
            )
        return catalog, database

    def path(self, text: str) -> tuple[str, str, str]:
        """(catalog, database, table) of a table's name."""
        parts = text.split(".")
        named = len(parts) >= 3 and self.known(parts[0])
        catalog, rest = (parts[0], parts[1:]) if named else (self.catalog, parts)
        if catalog != OWN_CATALOG and (place := self._located(catalog, rest)) is not None:
            return catalog, *place
        if named:
            return parts[0], ".".join(parts[1:-1]), parts[-1]
        if len(parts) == 2 and (self.catalog != OWN_CATALOG or parts[0] == OWN_DATABASE):
            return self.catalog, parts[0], parts[1]
        return self.catalog, self.database, text

    def _located(self, catalog: str, parts: list[str]) -> tuple[str, str] | None:
        opened = self.opened(catalog, f"name '{'.'.join(parts)}'")
        current = self.database if catalog == self.catalog else opened.default_database
        return opened.located(parts, current)

    def canonical(self, text: str) -> str:
        """A table's name as plans write it: one part in the session's own database, else three parts."""
        catalog, database, name = self.path(text)
        if (catalog, database) == (OWN_CATALOG, OWN_DATABASE):
            return name
        return f"{catalog}.{database}.{name}"


class Names(MutableMapping[str, T], Generic[T]):
    """The tables or views by name: those of the session (``_own``, by canonical name), and those of stored
    catalogs.

    ``load``: makes a table from its stored statement and its name. ``text``: makes the statement of a table
    and its name. Both are None for views, which catalogs do not store.
    """

    def __init__(
        self,
        catalogs: SessionCatalogs,
        kind: str,
        load: Callable[[str, str], T] | None = None,
        text: Callable[[T, str], str] | None = None,
    ) -> None:
        self._catalogs = catalogs
        self._kind = kind
        self._load: Callable[[str, str], T] | None = load
        self._text: Callable[[T, str], str] | None = text
        self._own: dict[str, T] = {}

    def _stored(self, key: str) -> tuple[StoredCatalog, str, str] | None:
        if self._load is None:
            return None
        catalog, database, name = self._catalogs.path(key)
        if catalog == OWN_CATALOG:
            return None
        return self._catalogs.opened(catalog, f"name '{key}'"), database, name

    def __getitem__(self, key: str) -> T:
        if key in self._own:
            return self._own[key]
        canonical: str = self._catalogs.canonical(key)
        if canonical in self._own:
            return self._own[canonical]
        place = self._stored(canonical)
        statement = None if place is None else place[0].table(place[1], place[2])
        if statement is None or self._load is None:
            raise KeyError(key)
        return self._load(statement, canonical)

    def __setitem__(self, key: str, value: T) -> None:
        canonical: str = self._catalogs.canonical(key)
        catalog, database, name = self._catalogs.path(key)
        value = replace(value, name=canonical)
        if value.temporary or catalog == OWN_CATALOG:
            if catalog == OWN_CATALOG and database != OWN_DATABASE:
                raise SqlError(
                    f"unknown database '{database}'", expected=f"{OWN_CATALOG}.{OWN_DATABASE}", got=repr(key)
                )
            self._own[canonical] = value
            return
        place = self._stored(canonical)
        if place is None:
            raise UnsupportedError(
                f"a {self._kind} in catalog '{catalog}'",
                expected="a temporary one, or one of the session's own catalog",
                got=f"{self._kind} '{canonical}'",
                remedy=f"CREATE TEMPORARY {self._kind.upper()}, or name it {OWN_CATALOG}.{OWN_DATABASE}.{name}",
            )
        self._put(place, canonical, value)

    def given_options(self, key: str, where: str) -> Mapping[str, str]:
        """The options that the catalog gives to a table of this name; its statement need not name them."""
        place = self._stored(self._catalogs.canonical(key))
        return {} if place is None else place[0].given_options(place[1], place[2])

    def rename(self, key: str, new: str, where: str) -> None:
        """Rename ``key`` to ``new``. A table of a stored catalog keeps its database."""
        value = self[key]
        canonical: str = self._catalogs.canonical(key)
        place = None if canonical in self._own else self._stored(canonical)
        if place is None:
            del self[key]
            self[new] = value
            return
        catalog, database, name = place
        target = self._catalogs.path(new) if "." in new else (*self._catalogs.path(canonical)[:2], new)
        if target[:2] != self._catalogs.path(canonical)[:2]:
            raise SqlError("a table keeps its database when it is renamed", got=repr(new), where=where)
        try:
            catalog.rename_table(database, name, target[2])
        except ChangedError as err:
            raise SqlError(str(err), got=repr(new), where=where) from None

    def _put(self, place: tuple[StoredCatalog, str, str], canonical: str, value: Any) -> None:
        catalog, database, name = place
        create = getattr(catalog, "create_stored", None)
        try:
            seen = catalog.table(database, name)
            if create is not None and seen is None:
                _only_columns(value, canonical)
                create(
                    database,
                    name,
                    declared_arrow(value.physical, f"table '{canonical}'"),
                    value.partition_keys,
                )
                return
            assert self._text is not None
            catalog.put_table(database, name, self._text(value, name), seen=seen)
        except ChangedError as err:
            raise SqlError(
                f"the catalog refuses table '{canonical}': {err}",
                expected="a database that is there, and the table as it was seen",
                got=str(err),
                where=value.where,
                remedy="look at it again: SHOW DATABASES, SHOW TABLES, DESCRIBE",
            ) from None

    def __delitem__(self, key: str) -> None:
        canonical: str = self._catalogs.canonical(key)
        if self._own.pop(canonical, None) is not None:
            return
        place = self._stored(canonical)
        if place is None or not place[0].drop_table(place[1], place[2]):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed(self._catalogs.catalog, self._catalogs.database))

    def __len__(self) -> int:
        return len(self.listed(self._catalogs.catalog, self._catalogs.database))

    def listed(self, catalog: str, database: str) -> list[str]:
        """The names in a database, sorted."""
        if catalog == OWN_CATALOG:
            return [n for n in self._own if not self._foreign(n)]
        prefix = f"{catalog}.{database}."
        found = {name.removeprefix(prefix) for name in self._own if name.startswith(prefix)}
        if self._load is not None:
            found.update(self._catalogs.opened(catalog, f"database '{database}'").tables(database))
        return sorted(found)

    def _foreign(self, name: str) -> bool:
        parts = name.split(".")
        return len(parts) > 2 and parts[0] != OWN_CATALOG and self._catalogs.known(parts[0])


def _only_columns(table: Table, name: str) -> None:
    """Raise UnsupportedError for parts of a declaration that an Iceberg catalog does not keep."""
    parts = {
        "a watermark": table.watermark_clause is not None,
        "a primary key": bool(table.primary_key),
        "computed or metadata columns": any(c.kind != "physical" for c in table.columns),
        "a comment": table.comment is not None,
    }
    found = [words for words, there in parts.items() if there]
    if found:
        raise UnsupportedError(
            f"{found[0]} in a table of an Iceberg catalog",
            expected="columns with types, and PARTITIONED BY",
            got=f"table '{name}' with {', '.join(found)}",
            where=table.where,
            remedy="CREATE TEMPORARY TABLE … WITH ('connector' = 'iceberg', …) declares it for this session",
        )
