"""Changes of a database through ``postgres-cdc`` or ``mysql-cdc``, as a second and a CPU second of Penstock's processes.

    python -m bench.cdc --databases postgres,mariadb --changes 1000000 --sizes 1,20

The server (PostgreSQL, MariaDB) gets the changes first: half updates, 45 % insertions, 5 % deletions, in transactions of so many
changes. Then a job on an embedded cluster follows its log, with old and new rows, into ``blackhole``, with checkpoints every
10 s. An update is one change and two rows. Counted is from the first rows that arrive to the last, so that the start of the
processes is left out; CPU time is that of all processes of the cluster, but for the server.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu import Tree
from penstock.api.client import TERMINAL, ClusterClient
from penstock.embedded import EmbeddedCluster
from tests.servers import mariadb_server, postgres_server
from tests.servers.mariadb_server import MariaDbServer
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

ROWS = 10_000
#: Changes that MariaDB makes in one statement: the client waits for a statement only so long.
_PART = 10_000
_COLUMNS = "id BIGINT, customer INT, cents DECIMAL(12, 2), item STRING, at TIMESTAMP(6), PRIMARY KEY (id) NOT ENFORCED"
#: Of 20 changes: 10 updates, 9 insertions, 1 deletion (of what was inserted before).
_POSTGRES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, cents numeric(12, 2), item text, at timestamp);
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO orders SELECT i, i % 97, i * 0.25, 'item ' || i % 1000, now() FROM generate_series(1, {rows}) AS i;
CREATE PUBLICATION bench FOR TABLE orders;
CREATE PROCEDURE work(changes int, size int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 0 .. changes - 1 LOOP
    IF i % 2 = 0 THEN UPDATE orders SET cents = cents + 1, at = clock_timestamp() WHERE id = 1 + (i / 2) % {rows};
    ELSIF i % 20 = 19 THEN DELETE FROM orders WHERE id = {rows} + i - 2;
    ELSE INSERT INTO orders VALUES ({rows} + i, i % 97, i * 0.01, 'item ' || i % 1000, clock_timestamp());
    END IF;
    IF i % size = size - 1 THEN COMMIT; END IF;
  END LOOP;
END $$;
"""
_MARIADB = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, cents decimal(12, 2), item varchar(100), at datetime(6));
INSERT INTO orders SELECT seq, seq % 97, seq * 0.25, CONCAT('item ', seq % 1000), NOW(6) FROM seq_1_to_{rows};
CREATE PROCEDURE work(first int, changes int, size int)
BEGIN
  DECLARE i INT DEFAULT first;
  START TRANSACTION;
  WHILE i < first + changes DO
    IF i % 2 = 0 THEN UPDATE orders SET cents = cents + 1, at = NOW(6) WHERE id = 1 + (i DIV 2) % {rows};
    ELSEIF i % 20 = 19 THEN DELETE FROM orders WHERE id = {rows} + i - 2;
    ELSE INSERT INTO orders VALUES ({rows} + i, i % 97, i * 0.01, CONCAT('item ', i % 1000), NOW(6));
    END IF;
    IF i % size = size - 1 THEN COMMIT; START TRANSACTION; END IF;
    SET i = i + 1;
  END WHILE;
  COMMIT;
END
"""


@dataclass(frozen=True)
class Measured:
    """``changes`` and ``rows`` that came in ``seconds``, with ``cpu_s`` by process."""

    changes: float
    rows: int
    seconds: float
    cpu_s: float
    by_name: dict[str, float]


def rows_of(changes: int) -> int:
    """Rows of the changelog: an update is two."""
    return changes + changes // 2


def in_postgres(server: PostgresServer, changes: int, size: int) -> dict[str, str]:
    """Make the changes; returns the options of the table."""
    database = server.database()
    server.execute(_POSTGRES.format(rows=ROWS, database=database), database=database)
    slot = f"SELECT pg_create_logical_replication_slot('bench_{database}', 'pgoutput')"
    for statement in (slot, f"CALL work({changes}, {size})"):
        server.execute(statement, database=database)
    return {
        "connector": "postgres-cdc", "hostname": "127.0.0.1", "port": str(server.port), "username": USER,
        "password": PASSWORD, "database-name": database, "table-name": "orders", "slot.name": f"bench_{database}",
        "debezium.publication.name": "bench", "scan.startup.mode": "committed-offset",
    }  # fmt: skip


def in_mariadb(server: MariaDbServer, changes: int, size: int) -> dict[str, str]:
    """The same of a MariaDB."""
    database = server.database()
    for statement in _MARIADB.format(rows=ROWS).split(";\n", 2):
        server.execute(statement, database=database)
    [(file, at, *_)] = server.execute("SHOW MASTER STATUS")
    for first in range(0, changes, _PART):
        server.execute(f"CALL work({first}, {min(_PART, changes - first)}, {size})", database=database)
    return {
        "connector": "mysql-cdc", "hostname": "127.0.0.1", "port": str(server.port), "username": USER,
        "password": PASSWORD, "database-name": database, "table-name": "orders",
        "scan.startup.mode": "specific-offset", "scan.startup.specific-offset.file": str(file),
        "scan.startup.specific-offset.pos": str(at),
    }  # fmt: skip


def follow(client: ClusterClient, options: dict[str, str], changes: int, server: int) -> Measured:
    """Run the job until all rows have arrived."""
    words = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    script = (
        f"CREATE TABLE orders ({_COLUMNS}) WITH ({words});\n"
        "CREATE TABLE nothing (id BIGINT, customer INT, cents DECIMAL(12, 2), item STRING, at TIMESTAMP(6)) "
        "WITH ('connector' = 'blackhole', 'changelog' = 'retract');\n"
        "INSERT INTO nothing SELECT id, customer, cents, item, at FROM orders;"
    )
    job = client.submit({"name": "cdc", "sql": script, "parallelism": 1,
                         "config": {"execution.checkpointing.interval": "10 s"}})  # fmt: skip
    tree, want = Tree({server}), rows_of(changes)
    try:
        first = _wait(client, job, 1)
        began = time.monotonic()
        tree.start()
        last = _wait(client, job, want)
        seconds = time.monotonic() - began
        cpu_s = tree.stop()
        if last != want:
            raise RuntimeError(f"{last} rows came, {want} were made")
    finally:
        client.cancel(job)
    share = (last - first) / want
    return Measured(share * changes, last - first, seconds, cpu_s, tree.by_name())


def _wait(client: ClusterClient, job: str, rows: int) -> int:
    """Wait until so many rows have arrived; returns how many have."""
    while True:
        state = client.job(job)
        if state["state"] in TERMINAL:
            raise RuntimeError(f"the job ended as {state['state']}: {client.exceptions(job)}")
        found = [
            int(value)
            for vertex in state["vertices"]
            for name, value in client.vertex_metrics(job, vertex["id"]).items()
            if name.endswith("sinkRows")
        ]
        if sum(found) >= rows:
            return sum(found)
        time.sleep(0.1)


#: Database → its module of servers, its class there, and what makes the changes.
_DATABASES: dict[str, tuple[Any, Any, Any]] = {
    "postgres": (postgres_server, PostgresServer, in_postgres),
    "mariadb": (mariadb_server, MariaDbServer, in_mariadb),
}


@contextmanager
def started(server: Any) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    print("| database | changes a transaction | changes/s | changes a CPU second | rows a CPU second |")
    print("|---|---|---|---|---|", flush=True)
    for name in args.databases:
        module, kind, make = _DATABASES[name]
        if why := module.missing():
            raise SystemExit(why)
        for size in args.sizes:
            with ExitStack() as stack:
                server = stack.enter_context(started(kind()))
                options = make(server, args.changes, size)
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
                cluster = stack.enter_context(EmbeddedCluster(taskmanagers=1, slots=1, data_dir=folder))
                client = stack.enter_context(ClusterClient(cluster.rest_url))
                found = follow(client, options, args.changes, server.pid)
            print(
                f"| {name} | {size} | {found.changes / found.seconds:,.0f} | {found.changes / found.cpu_s:,.0f} "
                f"| {found.rows / found.cpu_s:,.0f} |",
                flush=True,
            )
            print(f"{found.seconds:.1f} s, CPU s by process: {found.by_name}", file=sys.stderr, flush=True)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cdc", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--databases", type=lambda text: text.split(","), default=["postgres", "mariadb"])
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")], default=[1, 20])
    args = parser.parse_args(argv)
    if args.changes % 20:
        parser.error("--changes is no multiple of 20")
    return args


if __name__ == "__main__":
    sys.exit(main())
