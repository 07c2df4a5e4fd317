"""Sessions: each has a catalog, a configuration and operations, and ends when its client is silent for too long."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from penstock.config import (
    DML_SYNC,
    GATEWAY_SESSIONS,
    GATEWAY_THREADS,
    LOCAL_TIME_ZONE,
    REST_ADDRESS,
    is_cluster_option,
    is_known_option,
)
from penstock.errors import SpecError, SqlError
from penstock.log_events import EventLog
from penstock.redaction import shown_options
from penstock.spark.support import spark_support
from penstock.sql import statements as st
from penstock.sql.completion import candidates
from penstock.sql.parsing import parse_script
from penstock.sql.session import SqlSession
from penstock.table.environment import RESULT_MODES
from penstock.table.rows import result_row
from penstock.table.running import run_statement
from penstock.types import logical as t
from penstock_services.common.http import NotFoundError
from penstock_services.gateway.catalog_view import catalog_view, tables_view
from penstock_services.gateway.operations import OVER, Operation, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.api.execution import JobClient
    from penstock.table.results import TableResult

_log = EventLog("penstock.gateway")

#: Settings that begin so are the client's.
_CLIENTS = "sql-client."
_JOB_ID = t.Schema((t.Field("job id", t.VarCharType()),))
_OK = t.Schema((t.Field("result", t.VarCharType()),))


class Session:
    """What one client of the gateway has declared and started.

    Args:
        config: Its settings: those of the gateway and the client's.
        now: Seconds of a clock that never goes back.
    """

    def __init__(self, config: Mapping[str, str], now: Callable[[], float] = time.monotonic) -> None:
        self.handle = str(uuid.uuid4())
        self._sql = SqlSession(config, spark=spark_support(), result_modes=RESULT_MODES)
        self._planning = threading.Lock()
        self._operations: dict[str, Operation] = {}
        #: Settings of the client's own, which it keeps in the session.
        self._clients: dict[str, str] = {}
        #: INSERTs of a statement set that is open; None: there is none.
        self._set: list[st.Insert] | None = None
        self._now = now
        self._used_s = now()

    def touch(self) -> None:
        """The client is there."""
        self._used_s = self._now()

    def idle_s(self) -> float:
        """Seconds since the client was last heard of."""
        return self._now() - self._used_s

    def properties(self) -> dict[str, str]:
        """The session's settings, without passwords."""
        return shown_options({**self._sql.config, **self._clients})

    def start(self, text: str, config: Mapping[str, str]) -> Operation:
        """Run a statement in the background.

        Args:
            text: One statement.
            config: Settings for this statement alone.
        """
        operation = Operation(lambda: self._run(text, config))
        self._operations[operation.handle] = operation
        operation.start()
        return operation

    def configure(self, text: str) -> None:
        """Run a statement that declares or sets something.

        Raises:
            SqlError: The statement starts a job.
        """
        with self._planning:
            statement = _one(text)
            if isinstance(statement, st.Query | st.Insert | st.StatementSet | st.ExecutePlan):
                raise SqlError(
                    "a session is not configured by a statement that starts a job",
                    expected="CREATE, DROP, ALTER, USE, SET or RESET",
                    got=text.strip()[:60],
                    where=str(statement.position),
                )
            self._outcome(statement)

    def operation(self, handle: str) -> Operation:
        """The operation ``handle``.

        Raises:
            NotFoundError: There is none.
        """
        found = self._operations.get(handle)
        if found is None:
            raise NotFoundError(
                f"there is no operation '{handle[:80]}' in this session",
                expected="the operationHandle of a statement that was not closed",
            )
        return found

    def close_operation(self, handle: str) -> Operation:
        """Stop an operation and forget it."""
        operation = self.operation(handle)
        operation.end("CLOSED")
        self._operations.pop(handle, None)
        return operation

    def complete(self, text: str, position: int) -> list[str]:
        """Words that may stand at ``position`` (characters from the start) instead of the one that begins there."""
        before = text[:position]
        word = before[len(before.rstrip(_WORD)) :]
        return list(candidates(self._sql.catalog, word)) if word else []

    def catalog(self) -> dict[str, Any]:
        """What statements may name; see ``catalog_view``."""
        with self._planning:
            return catalog_view(self._sql.catalog)

    def tables(self, catalog: str, database: str) -> dict[str, Any]:
        """The tables and views of a database; see ``tables_view``."""
        with self._planning:
            return tables_view(self._sql.catalog, catalog, database)

    def running(self) -> int:
        """Operations that are not over."""
        return sum(operation.status not in OVER for operation in list(self._operations.values()))

    def close(self) -> None:
        """Stop all operations."""
        while self._operations:
            self._operations.popitem()[1].end("CLOSED")

    # -- statements --------------------------------------------------------------------------

    def _run(self, text: str, config: Mapping[str, str]) -> Outcome:
        with self._planning:
            if (answered := self._statement_set(text)) is not None:
                return answered
            before = dict(self._sql.config)
            self._sql.config.update(config)
            try:
                statement = self._closed_set(text) or _one(text)
                return self._outcome(statement)
            finally:
                for key in config:
                    _restore(self._sql.config, key, before.get(key))

    def _outcome(self, statement: st.Statement) -> Outcome:
        if isinstance(statement, st.SetOption | st.ResetOption) and _is_clients(statement.key):
            _restore(self._clients, str(statement.key), getattr(statement, "value", None))
            return _ok()
        if isinstance(statement, st.SetOption) and statement.key == REST_ADDRESS.key:
            raise SqlError(
                f"a session of the gateway cannot set '{REST_ADDRESS.key}'",
                expected="statements for the gateway's own cluster",
                got=str(statement.value),
                where=str(statement.position),
                remedy="connect to a gateway of the other cluster",
            )
        result = run_statement(self._sql, statement)
        zone = LOCAL_TIME_ZONE.read(self._sql.config)
        schema, job = result.get_resolved_schema().logical, result.get_job_client()
        kind = result.get_result_kind().name
        if isinstance(statement, st.Query):
            return Outcome(schema, kind, result.collect(), is_query=True, job=job, zone=zone)
        if job is None:
            return Outcome(schema, kind, result.collect(), zone=zone)
        rows = _submitted(result, job, wait=DML_SYNC.read(self._sql.config))
        return Outcome(_JOB_ID, kind, rows, job=job, zone=zone)

    # -- statement sets, which a client sends line by line -------------------------------------

    def _statement_set(self, text: str) -> Outcome | None:
        """Takes up what belongs to an open statement set. None: the statement is to be run."""
        words = text.strip().rstrip(";").upper().split()
        if words == ["BEGIN", "STATEMENT", "SET"]:
            if self._set is not None:
                raise SqlError("a statement set is open already", remedy="END it first")
            self._set = []
            return _ok()
        if self._set is None or words == ["END"]:
            return None
        statement = _one(text)
        if not isinstance(statement, st.Insert):
            raise SqlError(
                "only INSERT statements may stand in a statement set",
                expected="INSERT, or END",
                got=text.strip()[:60],
                where=str(statement.position),
            )
        self._set.append(statement)
        return _ok()

    def _closed_set(self, text: str) -> st.Statement | None:
        """The statement set that END closes."""
        if text.strip().rstrip(";").upper() != "END":
            return None
        inserts, self._set = self._set, None
        if not inserts:
            raise SqlError(
                "END without statements of a set", expected="BEGIN STATEMENT SET; INSERT …; END;", got="END"
            )
        return st.StatementSet(tuple(inserts))


_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$"


def _is_clients(key: str | None) -> bool:
    """Whether a setting is for Flink's SQL client, and not for the session."""
    return key is not None and key.startswith(_CLIENTS) and not is_known_option(key)


def _restore(config: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        config.pop(key, None)
    else:
        config[key] = value


def _submitted(result: TableResult, job: JobClient, *, wait: bool) -> Iterator[Any]:
    """The row that tells of a job; after its end if ``wait``."""
    if wait:
        result.wait()
    job.close()
    yield result_row(tuple(_JOB_ID.names), (str(job.get_job_id()),), 0)


def _ok() -> Outcome:
    return Outcome(_OK, "SUCCESS", iter([result_row(("result",), ("OK",), 0)]))


def _one(text: str) -> st.Statement:
    statements = parse_script(text)
    if len(statements) != 1:
        raise SqlError(
            "one statement is expected",
            expected="one statement",
            got=f"{len(statements)} statements",
            where="line 1, column 1",
            remedy="send each statement by itself",
        )
    return statements[0]


class Sessions:
    """All sessions of a gateway.

    Args:
        config: The gateway's settings; ``rest.address`` says which cluster runs the jobs.
        defaults: Gives the cluster's defaults of jobs, over which the gateway's settings take precedence.
        idle_s: A session whose client is silent for so many seconds is closed; 0: never.
        most: So many sessions may be open.
        statements: So many statements may run at once, each in a thread.
        now: Seconds of a clock that never goes back.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        idle_s: float,
        most: int,
        statements: int = GATEWAY_THREADS.default,
        now: Callable[[], float] = time.monotonic,
        defaults: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._defaults = defaults
        self._statements = statements
        self._config = dict(config)
        self._idle_s = idle_s
        self._most = most
        self._now = now
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, properties: Mapping[str, Any]) -> Session:
        """A new session. Of ``properties``, those of the cluster and those that Penstock does not know are left
        out: Flink's client sends its whole configuration file.

        Raises:
            SpecError: Too many sessions are open, or a property's value does not fit.
            ExternalError: The cluster does not answer.
        """
        if len(self._sessions) >= self._most:
            raise SpecError(
                "too many sessions are open",
                expected=f"at most {self._most} ({GATEWAY_SESSIONS.key})",
                got=str(len(self._sessions)),
                remedy="close sessions that are not needed",
            )
        taken = session_options(properties)
        left = sorted(set(properties) - set(taken))
        session = Session({**self._defaults(), **self._config, **taken}, self._now)
        self._sessions[session.handle] = session
        _log.info("session_opened", session=session.handle, ignored=left)
        return session

    def get(self, handle: str) -> Session:
        """The session ``handle``; its client is heard of.

        Raises:
            NotFoundError: There is none.
        """
        session = self._sessions.get(handle)
        if session is None:
            raise NotFoundError(
                f"there is no session '{handle[:80]}'",
                expected="the sessionHandle of an open session",
                remedy="open one; a session whose client is silent is closed",
            )
        session.touch()
        return session

    def close(self, handle: str) -> None:
        """End a session and its operations."""
        self.get(handle).close()
        self._sessions.pop(handle, None)
        _log.info("session_closed", session=handle)

    def expire(self) -> None:
        """End the sessions whose clients have been silent for too long."""
        if not self._idle_s:
            return
        for session in list(self._sessions.values()):
            if session.idle_s() > self._idle_s:
                _log.info("session_expired", session=session.handle, idle_s=round(session.idle_s()))
                session.close()
                self._sessions.pop(session.handle, None)

    def start(self, handle: str, text: str, config: Mapping[str, str]) -> Operation:
        """Run a statement of the session ``handle`` in the background; see ``Session.start``.

        Raises:
            SpecError: Too many statements run already.
        """
        session = self.get(handle)
        running = sum(session.running() for session in list(self._sessions.values()))
        if running >= self._statements:
            raise SpecError(
                "too many statements run at once",
                expected=f"at most {self._statements} ({GATEWAY_THREADS.key})",
                got=str(running),
                remedy="close or cancel operations that are not needed, or wait",
            )
        return session.start(text, config)

    def close_all(self) -> None:
        """End all sessions."""
        for handle in list(self._sessions):
            self.close(handle)


def session_options(properties: Mapping[str, Any]) -> dict[str, str]:
    """The properties that a session may set: options of jobs that Penstock knows. Which cluster runs the jobs is the
    gateway's business."""
    return {
        key: str(value)
        for key, value in properties.items()
        if is_known_option(key) and not is_cluster_option(key) and key != REST_ADDRESS.key
    }
