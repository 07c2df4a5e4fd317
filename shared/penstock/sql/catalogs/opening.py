"""Opens catalogs by their options, and stores the declarations of CREATE CATALOG."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from penstock.errors import SqlError, nearest
from penstock.secrets import check, resolved
from penstock.sql.catalogs.log import LogCatalog, MemoryCatalog

if TYPE_CHECKING:
    from penstock.sql.catalogs.port import StoredCatalog

_DEFAULT = "default-database"
#: The COMMENT of CREATE CATALOG, which DESCRIBE CATALOG shows.
_COMMENT = "comment"
#: Type → (required options, further options). A further option that ends in ``.`` or ``-`` is a prefix of
#: names.
TYPES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generic_in_memory": ((), ()),
    "penstock": (("path",), ("fs.",)),
    "iceberg": (
        ("uri",),
        ("catalog-type", "catalog-name", "warehouse", "credential", "token", "scope", "prefix", "s3.", "gcs.",
         "adls.", "hdfs.", "rest.", "header.", "client.", "oauth2-", "sql."),
    ),
    "jdbc": (("base-url", _DEFAULT), ("username", "password")),
}  # fmt: skip


def open_catalog(name: str, options: Mapping[str, str], where: str) -> StoredCatalog:
    """The catalog that CREATE CATALOG declares. Raises SqlError for options that its type does not have."""
    options = {key: value for key, value in options.items() if key != _COMMENT}
    kind = options.get("type")
    if kind is None or kind not in TYPES:
        raise SqlError(
            f"catalog '{name}' has no known type",
            expected="'type' = one of " + ", ".join(TYPES),
            got="no option 'type'" if kind is None else repr(str(kind)),
            where=where,
            remedy=nearest(kind or "", TYPES),
        )
    required, more = TYPES[kind]
    exact = {"type", "comment", _DEFAULT, *required, *(k for k in more if k[-1] not in ".-")}
    for key in options:
        if key not in exact and not key.startswith(tuple(k for k in more if k[-1] in ".-")):
            raise SqlError(
                f"unknown option '{key}' of a catalog of the type '{kind}'",
                expected="one of " + ", ".join(sorted(exact)),
                got=repr(key),
                where=where,
                remedy=nearest(key, exact),
            )
    for key in required:
        if key not in options:
            raise SqlError(f"option '{key}' is missing", expected=f"'{key}' = '…'", where=where)
    check(options, where=f"{where}: catalog '{name}'")
    database = str(options.get(_DEFAULT, "default"))
    if kind == "generic_in_memory":
        return MemoryCatalog(database)
    plain = {str(k): str(v) for k, v in options.items()}
    if kind == "penstock":
        from penstock.store.open import open_store

        read = resolved(plain, where=f"catalog '{name}'")
        settings = {k.removeprefix("fs."): read[k] for k in read if k.startswith("fs.")}
        url = read["path"] if "://" in read["path"] else f"file://{os.path.abspath(read['path'])}"
        return LogCatalog(open_store(url, settings), database)
    own = {k: v for k, v in plain.items() if k not in ("type", "comment", _DEFAULT)}
    if kind == "jdbc":
        from penstock.sql.catalogs.jdbc import JdbcCatalog

        return JdbcCatalog(name, own, database)
    from penstock.sql.catalogs.iceberg import IcebergCatalog

    return IcebergCatalog(name, own, database)


class CatalogStore:
    """Stores the declarations of catalogs: in memory, or in a folder with a JSON file for each catalog.

    ``table.catalog-store.kind`` chooses: ``generic_in_memory`` or ``file``. The files hold options as they
    were written: a secret's name, not its value.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._memory: dict[str, dict[str, str]] = {}

    def names(self) -> list[str]:
        """The names of all catalogs, sorted."""
        if self._folder is None:
            return sorted(self._memory)
        if not self._folder.is_dir():
            return []
        return sorted(unquote(path.stem) for path in self._folder.glob("*.json"))

    def get(self, name: str) -> dict[str, str] | None:
        """A catalog's options; None if there is no such catalog."""
        if self._folder is None:
            return self._memory.get(name)
        try:
            found: dict[str, str] = json.loads(self._path(name).read_text())["options"]
        except FileNotFoundError:
            return None
        return found

    def create(self, name: str, options: Mapping[str, str]) -> bool:
        """Store a catalog's options. Returns False if there is a catalog of this name."""
        if self.get(name) is not None:
            return False
        plain = {str(k): str(v) for k, v in options.items()}
        if self._folder is None:
            self._memory[name] = plain
            return True
        draft = self._draft(name, plain)
        try:
            os.link(draft, self._path(name))  # the file appears whole, and never replaces one
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def replace(self, name: str, options: Mapping[str, str]) -> None:
        """Store other options of a catalog."""
        plain = {str(k): str(v) for k, v in options.items()}
        if self._folder is None:
            self._memory[name] = plain
        else:
            os.replace(self._draft(name, plain), self._path(name))

    def _draft(self, name: str, options: Mapping[str, str]) -> Path:
        """A new file of the folder with a catalog's declaration, under a name of its own."""
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{uuid.uuid4().hex}"
        draft.write_text(json.dumps({"format": 1, "name": name, "options": options}, indent=1))
        return draft

    def drop(self, name: str) -> bool:
        """Delete a catalog's declaration, not its tables. Returns False if there is no such catalog."""
        if self._folder is None:
            return self._memory.pop(name, None) is not None
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{quote(name, safe='')}.json"
