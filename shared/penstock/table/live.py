"""Shows a result in a notebook while its job runs: the rows that hold now, and how the job is.

A query's changes are applied: an update replaces its row in place, a deletion takes one away.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from penstock.api.client import TERMINAL
from penstock.api.html import rows_html
from penstock.errors import PenstockError
from penstock.functions.value_text import text_of
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from penstock.api.execution import JobClient
    from penstock.table.results import TableResult
    from penstock.types.logical import Schema

#: Rows that are shown.
SHOWN = 50
#: Rows that are kept while more come. Of a stream of more the oldest are forgotten.
KEPT = 10_000
#: Seconds between two pictures.
PAUSE_S = 0.25

Texts = tuple[str | None, ...]


class LiveRows:
    """The rows of a changelog that hold now, as texts, in the order in which they came.

    Args:
        schema: The columns.
        zone: The session's time zone, for columns with local time zone.
    """

    def __init__(self, schema: Schema, zone: str = "UTC") -> None:
        self.names, self._types, self._zone = schema.names, schema.types, zone
        self.changes = 0
        self.forgotten = 0
        self._rows: dict[int, Texts] = {}
        self._places: defaultdict[Texts, list[int]] = defaultdict(list)
        self._next = 0
        #: The place of the row that an update has just taken away: its new row belongs there.
        self._vacated: int | None = None

    def __len__(self) -> int:
        return len(self._rows) + self.forgotten

    def add(self, row: Any) -> None:
        """Apply a change: a row with ``get_row_kind()``."""
        self.changes += 1
        kind = row.get_row_kind()
        texts = tuple(
            None if value is None else text_of(value, type_, self._zone)
            for value, type_ in zip(row, self._types, strict=True)
        )
        if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
            place = self._take(texts)
            self._vacated = place if kind is RowKind.UPDATE_BEFORE else None
            return
        place, self._vacated = self._vacated, None
        if kind is not RowKind.UPDATE_AFTER or place is None:
            place, self._next = self._next, self._next + 1
        self._rows[place] = texts
        self._places[texts].append(place)
        if len(self._rows) > KEPT:
            self._take(self._rows[next(iter(self._rows))])
            self.forgotten += 1

    def _take(self, texts: Texts) -> int | None:
        """The place of the row, which is gone then; None for a row that was forgotten."""
        places = self._places.get(texts)
        if not places:
            self.forgotten = max(0, self.forgotten - 1)
            return None
        place = places.pop(0)
        if not places:
            del self._places[texts]
        del self._rows[place]
        return place

    def html(self, note: str, *, complete: bool) -> str:
        """The first rows of a result that is complete, else the last ones. ``note``: how the job is."""
        places = sorted(self._rows)
        shown = places[:SHOWN] if complete else places[-SHOWN:]
        rows = [self._rows[place] for place in shown]
        count = f"{len(self):,} row{'' if len(self) == 1 else 's'}"
        if len(shown) < len(self):
            count += f", the {'first' if complete else 'last'} {len(shown)} shown"
        if self.changes != len(self):
            count += f", of {self.changes:,} changes"
        return rows_html(self.names, rows, f"{count}; {note}")


def show(result: TableResult, *, zone: str, selects: bool) -> None:
    """Show a result in the notebook until its job has ended. An interrupt cancels the job."""
    import IPython.display

    live = LiveRows(result.get_schema().logical, zone)
    client = result.get_job_client()
    # IPython has no types.
    display: Any = IPython.display
    handle, html = display.DisplayHandle(), display.HTML
    if client is None:
        with result.collect() as rows:
            for row in rows:
                live.add(row)
        handle.display(html(live.html("complete", complete=True)))
        return
    picture = _Picture(live if selects else None, client)
    handle.display(html(picture.html()))
    with picture.updating(lambda: handle.update(html(picture.html()))):
        try:
            _follow(result, picture, selects=selects)
        except KeyboardInterrupt:
            if not selects:
                client.abandon()
            picture.ended = "interrupted, the job was cancelled"
        except BaseException:
            picture.ended = "failed"
            raise
        else:
            picture.ended = "complete"


def _follow(result: TableResult, picture: _Picture, *, selects: bool) -> None:
    if not selects:
        result.wait()
        return
    with result.collect() as rows:
        for row in rows:
            picture.add(row)


class _Picture:
    """The rows of a job, and how it is. Two threads use it: one reads rows, one draws."""

    def __init__(self, live: LiveRows | None, client: JobClient) -> None:
        self._live, self._client = live, client
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self.ended = ""

    def add(self, row: Any) -> None:
        assert self._live is not None, "only a query has rows"
        with self._lock:
            self._live.add(row)

    def html(self) -> str:
        note = f"{self._state()}, {time.monotonic() - self._started:.1f} s (job {self._client.get_job_id()})"
        with self._lock:
            if self._live is None:
                return rows_html((), (), note)
            return self._live.html(note, complete=bool(self.ended))

    def _state(self) -> str:
        if self.ended:
            return self.ended
        try:
            state = self._client.get_job_status()
        except (PenstockError, RuntimeError):
            return "ending"  # the reader has seen the job's end, and closed the client
        return "ending" if state in TERMINAL else f"job {state.lower()}"

    def updating(self, draw: Any) -> _Updates:
        """Draws from time to time while a block runs, and once at its end."""
        return _Updates(draw)


class _Updates:
    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notebook-picture", daemon=True)

    def __enter__(self) -> _Updates:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._draw()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            self._draw()
