"""The options and metadata columns of ``postgres-cdc``, with the keys of Flink CDC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import Option, OptionSet, boolean, choice, duration_ms, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'postgres-cdc'"
STARTS = ("initial", "latest-offset", "committed-offset", "snapshot")

OPTIONS = OptionSet(
    OWNER,
    [
        Option("hostname", text, None, "The server.", required=True),
        Option("port", integer, 5432, "Its port."),
        Option("username", text, None, "A role that may log in for replication.", required=True),
        Option("password", text, None, "Its password; 'secret:NAME' takes it from where secrets lie."),
        Option("database-name", text, None, "The database.", required=True),
        Option("schema-name", text, "public", "The schema: a regular expression for its whole name."),
        Option("table-name", text, None, "The table: a regular expression for its whole name; several tables may match.", required=True),
        Option("slot.name", text, None, "The replication slot, made when it is missing; one for each job and table."),
        Option("decoding.plugin.name", choice("pgoutput"), "pgoutput", "The server's output plugin; pgoutput comes with PostgreSQL."),
        Option("debezium.publication.name", text, None, "The publication, made when it is missing; default: the slot's name."),
        Option("changelog-mode", choice("all", "upsert"), "all", "all: the old row of an update, too, which needs REPLICA IDENTITY FULL; upsert: the newest row of each primary key."),
        Option("scan.startup.mode", choice(*STARTS), "initial", "initial: the rows, then changes; latest-offset: changes from now on; committed-offset: changes from where the slot stands; snapshot: the rows alone, bounded."),
        Option("scan.incremental.snapshot.chunk.size", integer, 8096, "Rows that are read at once while the snapshot is taken."),
        Option("scan.snapshot.fetch.size", integer, 8096, "Rows of one batch of the snapshot at most."),
        Option("scan.lsn-commit.checkpoints-num-delay", integer, 3, "The slot keeps what so many of the newest checkpoints would need again."),
        Option("scan.schema-change", choice("fail", "ignore-added-columns"), "fail", "A column is added to a table: stop, or go on without the column. Other changes stop."),
        Option("debezium.truncate.handling.mode", choice("fail", "skip"), "fail", "TRUNCATE names no rows: stop, or go on as if nothing had happened."),
        Option("heartbeat.interval", duration_ms, 10_000, "How often the server hears that the reader lives, under its wal_sender_timeout."),
        Option("connect.timeout", duration_ms, 30_000, "How long one attempt to connect may take."),
        Option("debezium.database.sslmode", choice("disable", "allow", "prefer", "require", "verify-ca", "verify-full"), "prefer", "TLS, in the words of libpq."),
        Option("debezium.database.sslrootcert", text, None, "The file of the certificates that sign the server's."),
        Option("debezium.database.sslcert", text, None, "The file of the client's certificate."),
        Option("debezium.database.sslkey", text, None, "The file of the client's key."),
        Option("scan.incremental.snapshot.enabled", boolean, True, "Only true: the snapshot is always taken in chunks, without a lock."),
    ],
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "table_name": t.VarCharType(nullable=False),
    "schema_name": t.VarCharType(nullable=False),
    "database_name": t.VarCharType(nullable=False),
    "op_ts": t.TimestampLtzType(3, nullable=False),
}
