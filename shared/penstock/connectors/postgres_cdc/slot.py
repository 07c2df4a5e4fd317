"""Creates the publication and the replication slot if they are missing, and checks existing ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres_cdc.database import place, quoted, rows
from penstock.connectors.postgres_cdc.position import View, lsn_of, lsn_text
from penstock.errors import ConnectorError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.postgres_cdc.database import CdcTable

_log = EventLog("penstock.connectors.postgres_cdc")


def publication_name(options: Mapping[str, Any]) -> str:
    """The publication of a table."""
    return str(options["debezium.publication.name"] or options["slot.name"])


def make_publication(connection: Any, options: Mapping[str, Any], tables: Sequence[CdcTable]) -> None:
    """Create the publication, or check that the existing one sends all changes of the tables."""
    name = publication_name(options)
    found = rows(
        connection,
        options,
        "SELECT pubinsert AND pubupdate AND pubdelete AND (pubtruncate OR %s) FROM pg_publication WHERE pubname = %s",
        options["debezium.truncate.handling.mode"] == "skip",
        name,
    )
    wanted = ", ".join(table.quoted for table in tables)
    if not found:
        try:
            rows(connection, options, f"CREATE PUBLICATION {quoted(name)} FOR TABLE {wanted}")
        except ConnectorError as err:
            err.remedy = (
                f"let the tables' owner run CREATE PUBLICATION {quoted(name)} FOR TABLE {wanted}, "
                "or GRANT CREATE ON DATABASE to the user and make it an owner of the tables"
            )
            raise
        _log.info("postgres_publication_made", where=place(options), publication=name)
        return
    if not found[0][0]:
        raise ConnectorError(
            f"publication '{name}' leaves out changes",
            expected="publish = 'insert, update, delete, truncate'",
            got="fewer of them",
            where=place(options),
            remedy=f"ALTER PUBLICATION {quoted(name)} SET (publish = 'insert, update, delete, truncate')",
        )
    sent = {
        (schema, table)
        for schema, table in rows(
            connection,
            options,
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s",
            name,
        )
    }
    missing = [table for table in tables if (table.schema, table.name) not in sent]
    if missing:
        raise ConnectorError(
            f"publication '{name}' does not hold table '{missing[0].shown}'",
            expected="a publication of all tables that are read",
            got=", ".join(sorted(f"{schema}.{table}" for schema, table in sent)) or "an empty one",
            where=place(options),
            remedy=f"ALTER PUBLICATION {quoted(name)} ADD TABLE {', '.join(table.quoted for table in missing)}",
        )
    if connection.info.server_version >= 150_000 and rows(
        connection,
        options,
        "SELECT 1 FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid "
        "WHERE p.pubname = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)",
        name,
    ):
        raise ConnectorError(
            f"publication '{name}' leaves out rows or columns",
            expected="a publication of whole tables",
            got="one with WHERE or a list of columns",
            where=place(options),
            remedy="set another 'debezium.publication.name', or drop it so that it is made",
        )


_SLOT = """
SELECT plugin, database, COALESCE(confirmed_flush_lsn, restart_lsn)::text, wal_status, temporary
FROM pg_replication_slots WHERE slot_name = %s
"""


def find_slot(connection: Any, options: Mapping[str, Any]) -> int | None:
    """The position of the slot: the server keeps changes after this LSN. None: there is no slot.
    ConnectorError for a slot of another kind, and for one that has lost changes."""
    name = options["slot.name"]
    found = rows(connection, options, _SLOT, name)
    if not found:
        return None
    plugin, database, lsn, status, temporary = found[0]
    if plugin != "pgoutput" or database != options["database-name"] or temporary:
        raise ConnectorError(
            f"replication slot '{name}' is another's",
            expected=f"a slot of pgoutput and database '{options['database-name']}'",
            got=f"a slot of {plugin or 'physical replication'} and database '{database}'",
            where=place(options),
            remedy="set another 'slot.name'",
        )
    if status == "lost" or lsn is None:
        raise ConnectorError(
            f"replication slot '{name}' has lost changes",
            expected="all changes since the last checkpoint",
            got="the server removed its log (max_slot_wal_keep_size)",
            where=place(options),
            remedy=f"SELECT pg_drop_replication_slot('{name}'), and start the job without its state",
        )
    return lsn_of(lsn)


def make_slot(connection: Any, options: Mapping[str, Any]) -> int:
    """Create the slot if it is missing; returns its position."""
    there = find_slot(connection, options)
    if there is None:
        name = options["slot.name"]
        [(lsn,)] = rows(
            connection,
            options,
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')",
            name,
        )
        there = lsn_of(lsn)
        _log.info("postgres_slot_made", where=place(options), slot=name, lsn=lsn)
    return there


def wait_for_transactions(connection: Any, options: Mapping[str, Any]) -> None:
    """Wait until every transaction that runs now has ended. All later views then see its changes, even if its
    commit was logged before the slot began."""
    [(now,)] = rows(connection, options, "SELECT pg_current_snapshot()::text")
    goal = View.parse(now).xmax
    pause_s, told = 0.002, False
    while True:
        [(now,)] = rows(connection, options, "SELECT pg_current_snapshot()::text")
        if View.parse(now).xmin >= goal:
            return
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 1.5)
        if pause_s == 1.0 and not told:
            _log.warning("postgres_waits_for_transactions", where=place(options))
            told = True


def check_restored(connection: Any, options: Mapping[str, Any], lsn: int) -> None:
    """ConnectorError unless the slot still has all changes after ``lsn``."""
    name, there = options["slot.name"], find_slot(connection, options)
    if there is None or there > lsn:
        raise ConnectorError(
            f"replication slot '{name}' no longer has the changes behind this state",
            expected=f"a slot that stands at {lsn_text(lsn)} or before",
            got="no such slot" if there is None else f"one at {lsn_text(there)}",
            where=place(options),
            remedy="restore from a newer checkpoint, or start without state and with another 'slot.name'; "
            "'scan.lsn-commit.checkpoints-num-delay' keeps what more checkpoints need",
        )
