"""Tables of MariaDB that are written while ``mysql-cdc`` follows them."""

from __future__ import annotations

import random
import threading
from typing import Any

import pymysql

from penstock.connectors.mysql_cdc import MySqlCdcConnector
from penstock.types import Schema
from tests.connectors import replayed
from tests.connectors.replayed import Replayed
from tests.servers.mariadb_server import PASSWORD, USER, MariaDbServer


def options(server: MariaDbServer, database: str, table: str, **more: str) -> dict[str, str]:
    return {
        "connector": "mysql-cdc", "hostname": "127.0.0.1", "port": str(server.port), "username": USER,
        "password": PASSWORD, "database-name": database, "table-name": table, **more,
    }  # fmt: skip


class Reading(replayed.Reading):
    """A reader of ``mysql-cdc``."""

    def __init__(self, schema: Schema, given: dict[str, str], **more: Any) -> None:
        super().__init__(MySqlCdcConnector(), schema, given, **more)


class Writers:
    """Threads that insert, update, delete, move keys and roll back, until they are stopped. ``key``: a key in SQL."""

    def __init__(self, server: MariaDbServer, database: str, seed: int, key: str = "%s") -> None:
        self.server, self.database, self.seed, self.key = server, database, seed, key
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(k,), daemon=True) for k in range(3)]
        for thread in self.threads:
            thread.start()

    def _write(self, number: int) -> None:
        chance, i = random.Random(self.seed * 10 + number), 0
        connection: Any = None
        while not self.stopped.is_set():
            try:
                connection = connection or self.server.connect(self.database)
                with connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    for _ in range(chance.randint(1, 6)):
                        self._step(cursor, chance, i)
                        i += 1
                    cursor.execute("ROLLBACK" if chance.random() < 0.1 else "COMMIT")
            except (pymysql.Error, OSError) as err:
                # The other writer holds the row, or the server is killed.
                if not (err.args and err.args[0] in (1205, 1213, 1062)):
                    connection = None
                self.stopped.wait(0.01)
        if connection is not None:
            connection.close()

    def _step(self, cursor: Any, chance: random.Random, i: int) -> None:
        key, choice, k = chance.randint(1, 900), chance.random(), self.key
        if choice < 0.3:
            cursor.execute(f"INSERT IGNORE INTO orders VALUES ({k}, %s, 0)", (key, f"new {i}"))
        elif choice < 0.75:
            cursor.execute(f"UPDATE orders SET n = n + 1 WHERE id = {k}", (key,))
        elif choice < 0.8:
            cursor.execute("UPDATE orders SET n = n + 1 WHERE n %% 7 = %s LIMIT 40", (key % 7,))
        elif choice < 0.9:
            cursor.execute(f"DELETE FROM orders WHERE id = {k}", (key,))
        else:
            cursor.execute(f"UPDATE IGNORE orders SET id = {k} WHERE id = {k}", (key + 1000, key))

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def orders(
    server: MariaDbServer, database: str, rows: int = 600, key: str = "bigint", made: str = "seq * 2"
) -> None:
    server.execute(f"CREATE TABLE orders (id {key} PRIMARY KEY, name text, n int)", database=database)
    numbers = f"(WITH RECURSIVE s(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM s WHERE seq < {rows}) SELECT seq FROM s) AS q"
    connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute(
            "SET SESSION max_recursive_iterations = 10000000"
            if "MariaDB" in connection.get_server_info()
            else "SET SESSION cte_max_recursion_depth = 10000000"
        )
        cursor.execute(f"INSERT INTO orders SELECT {made}, CONCAT('name ', seq), 0 FROM {numbers}")
    connection.close()


async def followed(
    server: MariaDbServer, database: str, seed: int, schema: Schema, *, key: str = "%s", rows: int = 4_000,
    crash: Any = None, most_restores: int = 6, batch_rows: int = 32, **more: str,
) -> int:  # fmt: skip
    """Follows ``orders`` while it is written, restoring at random; compares it with the table at the end."""
    chance = random.Random(seed)
    small = {"scan.incremental.snapshot.chunk.size": "97", "scan.snapshot.fetch.size": "40"}
    given = options(server, database, "orders", **small, **more)
    reading = Reading(schema, given, batch_rows=batch_rows)
    table, count, restores = Replayed(), 0, 0
    await reading.start()
    writers = Writers(server, database, seed, key)
    saved = reading.position(), table.copy()
    crash_at = rows // 2

    async def step() -> None:
        nonlocal count
        fetched = reading.reader.poll()
        if fetched is None:
            await reading.reader.wait()
            return
        for kind, row in fetched.batch.rows():
            table.apply(kind, row)
            count += 1

    try:
        while count < rows:
            await step()
            if chance.random() < 0.1:
                saved = reading.position(), table.copy()
            if crash is not None and count > crash_at:
                crash()
                crash = None
            if restores < most_restores and chance.random() < 0.02:
                await reading.stop()
                reading.splits, table = saved[0], saved[1].copy()
                restores += 1
                await reading.start()
        writers.stop()
        last = "zz end" if "CONCAT" in key else -1
        server.execute("INSERT INTO orders VALUES (%s, 'end', 0)", last, database=database)
        while last not in table.rows or reading.position()[0].position["cursor"] is not None:
            await step()
    finally:
        writers.stop()
        await reading.stop()
    there = {row[0]: row for row in server.execute("SELECT id, name, n FROM orders", database=database)}
    assert table.rows == there
    return restores
