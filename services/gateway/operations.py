"""Operations: a statement that runs in a thread, and its rows, which a client fetches page by page."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import FunctionError, PenstockError, SpecError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.api.execution import JobClient
    from penstock.types import logical as t

_log = EventLog("penstock.gateway")

Status = Literal["INITIALIZED", "PENDING", "RUNNING", "FINISHED", "CANCELED", "CLOSED", "ERROR", "TIMEOUT"]
OVER: frozenset[Status] = frozenset({"FINISHED", "CANCELED", "CLOSED", "ERROR", "TIMEOUT"})
#: Rows that wait for the client; the query waits when there are so many.
BUFFERED_ROWS = 5_000
#: Seconds that a fetch waits for the first row.
PATIENCE_S = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement gives, before its rows are read.

    Args:
        schema: Columns of the rows.
        kind: ``SUCCESS``: the row says OK; ``SUCCESS_WITH_CONTENT``: the rows say something.
        rows: The rows; of a query as its job makes them.
        is_query: Whether the rows are a query's.
        job: The job that was started, or None.
        zone: Time zone of the session.
    """

    schema: t.Schema
    kind: str
    rows: Iterator[Any]
    is_query: bool = False
    job: JobClient | None = None
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of one fetch. ``outcome``: None while the statement has no result yet. ``next_token``: None at the end."""

    outcome: Outcome | None
    rows: tuple[Any, ...]
    next_token: int | None
    at_end: bool = False


class Operation:
    """One statement. ``run`` is called in a thread of its own and returns the outcome.

    A page can be fetched again under its token until the next one is fetched.
    """

    def __init__(self, run: Callable[[], Outcome]) -> None:
        self.handle = str(uuid.uuid4())
        self.status: Status = "PENDING"
        self._run = run
        self._changed = threading.Condition()
        self._outcome: Outcome | None = None
        self._error: Exception | None = None
        self._rows: deque[Any] = deque()
        self._complete = False
        self._token = 0
        self._last: tuple[Any, ...] = ()
        self._thread = threading.Thread(target=self._work, name=f"operation {self.handle}", daemon=True)

    def start(self) -> None:
        """Begin to run."""
        self._thread.start()

    # -- in its thread ---------------------------------------------------------------------

    def _work(self) -> None:
        if not self._become("RUNNING"):
            return
        try:
            outcome = self._run()
            with self._changed:
                self._outcome = outcome
                self._changed.notify_all()
            if self.status in OVER:  # cancelled while it was planned
                self._end_job()
                return
            for row in outcome.rows:
                if not self._put(row):
                    return
            with self._changed:
                self._complete = True
                self._changed.notify_all()
            self._become("FINISHED")
        except Exception as err:
            self._fail(err)
        except BaseException as err:  # SystemExit of a user's function must not end the process that fetches
            self._fail(FunctionError(f"Python code of the statement raised {err!r}"))

    def _put(self, row: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._rows) < BUFFERED_ROWS or self.status in OVER)
            if self.status in OVER:
                return False
            self._rows.append(row)
            self._changed.notify_all()
        return True

    def _fail(self, err: Exception) -> None:
        with self._changed:
            over = self.status in OVER
            if not over:
                self._error, self.status = err, "ERROR"
            self._changed.notify_all()
        if over:
            _log.debug("operation_ended_after_cancel", operation=self.handle, error=str(err))
        elif not isinstance(err, PenstockError):
            _log.error("operation_failed", operation=self.handle, exc_info=err)

    def _become(self, status: Status) -> bool:
        """Whether the operation took ``status``: one that is over keeps the status in which it ended."""
        with self._changed:
            if self.status in OVER:
                return False
            self.status = status
            self._changed.notify_all()
            return True

    # -- for clients -----------------------------------------------------------------------

    def end(self, status: Literal["CANCELED", "CLOSED", "TIMEOUT"]) -> None:
        """Stop the statement. The job of a query is cancelled; that of an INSERT, which was submitted, runs on."""
        running = self._become(status)
        with self._changed:
            if status == "CLOSED":
                self.status, self._last = status, ()
                self._rows.clear()
        if running:
            self._end_job()

    def _end_job(self) -> None:
        outcome = self._outcome
        if outcome is None or outcome.job is None or not outcome.is_query:
            return
        try:
            outcome.job.cancel()
        except (PenstockError, RuntimeError) as err:
            # The cluster ends a query by itself when its reader has gone.
            _log.warning("query_not_cancelled", operation=self.handle, error=str(err))

    def fetch(self, token: int) -> Page:
        """The page of ``token``. Waits a moment for its first row.

        Raises:
            PenstockError: The statement failed, with its own error.
            SpecError: The token is neither the next one nor the last one; or the operation was cancelled or closed.
        """
        with self._changed:
            self._changed.wait_for(self._ready, PATIENCE_S)
            if self._error is not None:
                raise self._error
            if self.status in ("CANCELED", "CLOSED", "TIMEOUT"):
                raise SpecError(
                    f"operation {self.handle} has no results",
                    expected="an operation that runs or has finished",
                    got=self.status,
                    remedy="run the statement again",
                )
            if self._outcome is None:
                return Page(None, (), token)
            if token == self._token - 1:
                return Page(self._outcome, self._last, self._token)
            if token != self._token:
                raise SpecError(
                    "unknown token of a result page",
                    expected=str(self._token) if not self._token else f"{self._token} or {self._token - 1}",
                    got=str(token),
                    remedy="follow nextResultUri",
                )
            return self._next()

    def _ready(self) -> bool:
        return bool(self._rows) or self._complete or self.status in OVER

    def _next(self) -> Page:
        if not self._rows:
            if self._complete:
                return Page(self._outcome, (), None, at_end=True)
            return Page(self._outcome, (), self._token)
        self._last = tuple(self._rows)
        self._rows.clear()
        self._token += 1
        self._changed.notify_all()
        return Page(self._outcome, self._last, self._token)
