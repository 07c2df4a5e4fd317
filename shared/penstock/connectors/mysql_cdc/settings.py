"""The options and metadata columns of ``mysql-cdc``, with the keys of Flink CDC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.cdc.connector import wrong
from penstock.options import Option, OptionSet, boolean, choice, duration_ms, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'mysql-cdc'"
STARTS = ("initial", "earliest-offset", "latest-offset", "specific-offset", "timestamp", "snapshot")
_MOST_SERVER_ID = 0xFFFFFFFF
TLS = ("disabled", "preferred", "required", "verify_ca", "verify_identity")

OPTIONS = OptionSet(
    OWNER,
    [
        Option("hostname", text, None, "The server.", required=True),
        Option("port", integer, 3306, "Its port."),
        Option("username", text, None, "A user with SELECT, REPLICATION SLAVE and REPLICATION CLIENT.", required=True),
        Option("password", text, None, "Its password; 'secret:NAME' takes it from where secrets lie.", required=True),
        Option("database-name", text, None, "The database: a regular expression for its whole name.", required=True),
        Option("table-name", text, None, "The table: a regular expression for its whole name; several tables may match.", required=True),
        Option("server-id", text, None, "The number that this reader has among the server's replicas, or a range of which the first is taken; by default a random one."),
        Option("changelog-mode", choice("all", "upsert"), "all", "all: the old row of an update, too; upsert: the newest row of each primary key."),
        Option("scan.startup.mode", choice(*STARTS), "initial", "initial: the rows, then changes; earliest-offset: the changes that the server still has; latest-offset: changes from now on; specific-offset, timestamp: changes from there; snapshot: the rows alone, bounded."),
        Option("scan.startup.specific-offset.file", text, None, "The file of the binary log, for specific-offset."),
        Option("scan.startup.specific-offset.pos", integer, None, "The position in the file, where a transaction begins."),
        Option("scan.startup.specific-offset.gtid-set", text, None, "Instead of a file: the transactions before the start, as the server writes them."),
        Option("scan.startup.timestamp-millis", integer, None, "For timestamp: transactions that began earlier are left out, ms since the epoch."),
        Option("scan.incremental.snapshot.chunk.size", integer, 8096, "Rows that are read at once while the snapshot is taken."),
        Option("scan.snapshot.fetch.size", integer, 8096, "Rows of one batch of the snapshot at most."),
        Option("scan.incremental.snapshot.enabled", boolean, True, "Only true: the snapshot is always taken in chunks, without a lock."),
        Option("scan.schema-change", choice("fail", "ignore-added-columns"), "fail", "Columns are added behind a table's last one: stop, or go on without them. Other changes stop."),
        Option("debezium.truncate.handling.mode", choice("fail", "skip"), "fail", "TRUNCATE names no rows: stop, or go on as if nothing had happened."),
        Option("server-time-zone", text, "UTC", "The time zone in which a TIMESTAMP of the server is shown where the column is declared as TIMESTAMP."),
        Option("heartbeat.interval", duration_ms, 10_000, "How often the server tells an idle reader that it lives; after three intervals without a word it is taken for lost."),
        Option("connect.timeout", duration_ms, 30_000, "How long one attempt to connect may take."),
        Option("debezium.database.ssl.mode", choice(*TLS), "preferred", "TLS, in the words of MySQL's clients."),
        Option("debezium.database.ssl.ca", text, None, "The file (PEM) of the certificates that sign the server's."),
    ],
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "table_name": t.VarCharType(nullable=False),
    "database_name": t.VarCharType(nullable=False),
    "op_ts": t.TimestampLtzType(3, nullable=False),
}


def server_id_of(options: dict[str, Any]) -> int | None:
    """The number of option ``server-id``: its first, for a range; None: a random one. ConnectorError for another
    text."""
    text = options["server-id"]
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if found is None or not 0 < int(found.group(1)) <= _MOST_SERVER_ID:
        raise wrong(OWNER, "server-id", "a number from 1 to 4294967295, or a range of them", repr(text))
    return int(found.group(1))
