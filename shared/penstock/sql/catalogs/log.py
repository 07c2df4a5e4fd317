"""Penstock's own catalogs: a pure state and its changes, kept in memory or in a log of objects.

An entry of the log holds one change and the version on which the change was decided. The entry's key is the
next version, and the store creates the object only if there is none. A writer that loses this race reads the
new entries and decides again. After every hundred entries a writer stores a snapshot of the state. Entries
that a snapshot covers stay for a day, so that a reader in the middle of them can continue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.errors import ExternalError
from penstock.sql.catalogs.port import ChangedError, Properties, StoredCatalog

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from penstock.ports import Store

T = TypeVar("T")

#: Entries between two snapshots.
_SNAPSHOT_EVERY = 100
#: How long entries stay that a snapshot covers.
_KEPT_MS = 24 * 60 * 60 * 1000
_MOST_RACES = 100


class Database(msgspec.Struct):
    """A database of a catalog. ``tables``: name → CREATE TABLE statement."""

    properties: dict[str, str] = {}
    tables: dict[str, str] = {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the table ``table``, or of the whole database if ``table`` is None. ``statement`` None
    drops the table; ``properties`` None drops the database."""

    database: str
    table: str | None = None
    statement: str | None = None
    properties: dict[str, str] | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log. ``decided_on``: the version that its writer had read.
    ``format``: the version of this encoding."""

    change: Change
    decided_on: int
    made_ms: int
    format: int = 1


class State(msgspec.Struct):
    """A catalog at a version."""

    version: int = 0
    databases: dict[str, Database] = {}
    format: int = 1

    def apply(self, change: Change) -> None:
        """Carry out a change that was decided on this version of the state."""
        if change.table is not None:
            tables = self.databases[change.database].tables
            if change.statement is None:
                del tables[change.table]
            else:
                tables[change.table] = change.statement
        elif change.properties is None:
            del self.databases[change.database]
        else:
            self.databases.setdefault(change.database, Database()).properties.update(change.properties)
        self.version += 1


class MemoryCatalog(StoredCatalog):
    """A catalog of the type ``generic_in_memory``, which ends with its session."""

    def __init__(self, default_database: str) -> None:
        self.default_database = default_database
        self._state = State(databases={default_database: Database()})

    def _read(self) -> State:
        return self._state

    def _change(self, decide: Callable[[State], Change]) -> None:
        state = self._read()
        state.apply(decide(state))

    def databases(self) -> Sequence[str]:
        return sorted(self._read().databases)

    def properties(self, database: str) -> Properties:
        return dict(self._read().databases[database].properties)

    def create_database(self, name: str, properties: Properties) -> None:
        def decide(state: State) -> Change:
            if name in state.databases:
                raise ChangedError(f"database '{name}' exists already")
            return Change(database=name, properties=dict(properties))

        self._change(decide)

    def alter_database(self, name: str, properties: Properties) -> None:
        def decide(state: State) -> Change:
            _there(state, name)
            return Change(database=name, properties=dict(properties))

        self._change(decide)

    def drop_database(self, name: str, *, cascade: bool) -> None:
        def decide(state: State) -> Change:
            tables = _there(state, name).tables
            if tables and not cascade:
                raise ChangedError(f"database '{name}' has tables: {', '.join(sorted(tables))}")
            return Change(database=name)

        self._change(decide)

    def tables(self, database: str) -> Sequence[str]:
        found = self._read().databases.get(database)
        return [] if found is None else sorted(found.tables)

    def table(self, database: str, name: str) -> str | None:
        found = self._read().databases.get(database)
        return None if found is None else found.tables.get(name)

    def put_table(self, database: str, name: str, statement: str, *, seen: str | None) -> None:
        def decide(state: State) -> Change:
            there = _there(state, database).tables.get(name)
            if there != seen:
                raise ChangedError(
                    f"table '{name}' exists already"
                    if seen is None
                    else f"table '{name}' was changed by another"
                )
            return Change(database=database, table=name, statement=statement)

        self._change(decide)

    def drop_table(self, database: str, name: str) -> bool:
        def decide(state: State) -> Change:
            if name not in _there(state, database).tables:
                raise ChangedError(f"there is no table '{name}'")
            return Change(database=database, table=name)

        if self.table(database, name) is None:
            return False
        self._change(decide)
        return True


def _there(state: State, name: str) -> Database:
    if name not in state.databases:
        raise ChangedError(f"there is no database '{name}'")
    return state.databases[name]


class LogCatalog(MemoryCatalog):
    """A catalog of the type ``penstock``, kept in an object store below ``prefix``."""

    def __init__(self, store: Store, default_database: str, prefix: str = "") -> None:
        super().__init__(default_database)
        self._store = store
        self._prefix = prefix
        self._state = State()

    def _key(self, kind: str, version: int) -> str:
        return f"{self._prefix}{kind}/{version:012d}"

    def _read(self) -> State:
        _blocking(self._follow())
        if not self._state.databases:
            # The catalog is new: the first session that reads it creates the default database.
            try:
                self._append(lambda state: _first(state, self.default_database))
            except ChangedError:
                _blocking(self._follow())
        return self._state

    async def _follow(self) -> None:
        """Apply the entries after the version of ``_state``."""
        if self._state.version == 0:
            snapshots = await self._store.list(f"{self._prefix}snapshot/")
            if snapshots:
                self._state = msgspec.json.decode(await self._store.get(snapshots[-1][0]), type=State)
        while True:
            try:
                data = await self._store.get(self._key("log", self._state.version + 1))
            except KeyError:
                return
            self._state.apply(msgspec.json.decode(data, type=Entry).change)

    def _change(self, decide: Callable[[State], Change]) -> None:
        self._read()
        self._append(decide)

    def _append(self, decide: Callable[[State], Change]) -> None:
        for _ in range(_MOST_RACES):
            _blocking(self._follow())
            change = decide(self._state)
            version = self._state.version
            entry = Entry(change=change, decided_on=version, made_ms=time.time_ns() // 1_000_000)
            if _blocking(self._store.create(self._key("log", version + 1), msgspec.json.encode(entry))):
                self._state.apply(change)
                if self._state.version % _SNAPSHOT_EVERY == 0:
                    _blocking(self._compact())
                return
        raise ExternalError(
            "a change of the catalog lost every race",
            expected=f"a turn within {_MOST_RACES} tries",
            where=f"catalog log at '{self._prefix}'",
        )

    async def _compact(self) -> None:
        """Write a snapshot. Delete entries that the snapshot before it covers and that are older than a day;
        with them, delete all but the last two snapshots."""
        version = self._state.version
        await self._store.put(self._key("snapshot", version), msgspec.json.encode(self._state))
        snapshots = [key for key, _ in await self._store.list(f"{self._prefix}snapshot/")]
        old: list[str] = []
        for key, _ in await self._store.list(f"{self._prefix}log/"):
            if int(key.rpartition("/")[2]) > version - _SNAPSHOT_EVERY:
                break
            entry = msgspec.json.decode(await self._store.get(key), type=Entry)
            if time.time_ns() // 1_000_000 - entry.made_ms < _KEPT_MS:
                break
            old.append(key)
        if old:
            await self._store.delete(old + snapshots[:-2])


def _first(state: State, name: str) -> Change:
    if state.databases:
        raise ChangedError("the catalog has databases already")
    return Change(database=name, properties={})


def _blocking(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which runs in another thread, because this one
    may have a running event loop."""
    with ThreadPoolExecutor(1, "penstock-catalog") as pool:
        return pool.submit(asyncio.run, work).result()
