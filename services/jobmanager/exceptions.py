"""What went wrong in a job, newest first, the user's traceback before everything."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.errors import error_from_dict
from penstock.messages.slot import ErrorInfo

KEPT = 20


class ExceptionHistory:
    """Each entry: timestamp_ms, exception (text as a person reads it), error (dict), task,
    location, attempt, and ``concurrent``: others that came before the job had restarted."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def add(
        self,
        info: ErrorInfo,
        now_ms: int,
        *,
        job_attempt: int,
        task: str | None = None,
        location: str | None = None,
        concurrent: bool = False,
    ) -> dict[str, Any]:
        entry = {
            "timestamp_ms": now_ms,
            "exception": describe(info),
            "error": info.error,
            "task": task,
            "operator": info.operator,
            "record": info.record,
            "location": location,
            "attempt": job_attempt,
            "concurrent": [],
        }
        if concurrent and self._entries:
            others: list[dict[str, Any]] = self._entries[0]["concurrent"]
            if len(others) < KEPT:
                others.append(entry)
        else:
            self._entries.appendleft(entry)
        return entry

    def add_cause(self, info: ErrorInfo, now_ms: int, *, job_attempt: int, **more: Any) -> None:
        """A loss that is heard of after its first symptom: when what was noticed first, in
        the same attempt, is a broken connection, the loss takes its place at the top."""
        first = self.latest
        symptom = (
            first is not None
            and first["attempt"] == job_attempt
            and error_from_dict(first["error"]).domain == "external"
        )
        if not symptom or first is None:
            self.add(info, now_ms, job_attempt=job_attempt, concurrent=True, **more)
            return
        self._entries.popleft()
        entry = self.add(info, now_ms, job_attempt=job_attempt, **more)
        entry["concurrent"] = [first, *first["concurrent"]][:KEPT]
        first["concurrent"] = []

    def all(self) -> list[dict[str, Any]]:
        return list(self._entries)

    @property
    def latest(self) -> dict[str, Any] | None:
        return self._entries[0] if self._entries else None


def describe(info: ErrorInfo) -> str:
    """The user's traceback, our message, then where; our own traceback last."""
    error = error_from_dict(info.error)
    parts = [str(error)]
    if info.operator:
        parts.append(f"  operator: {info.operator}")
    if info.record:
        parts.append(f"  record:   {info.record}")
    if info.traceback and info.traceback.strip() != (error.user_traceback or "").strip():
        parts.append(info.traceback.rstrip())
    return "\n".join(parts)
