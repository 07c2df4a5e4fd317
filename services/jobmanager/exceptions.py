"""The failures of a job, newest first. Each begins with the user's traceback."""

from __future__ import annotations

import re
import signal
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.errors import FunctionError, PenstockError, SlotLostError, error_from_dict
from penstock.messages.slot import ErrorInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How many failures are kept, and how many concurrent ones with each.
KEPT = 20


class ExceptionHistory:
    """Each entry has timestamp_ms, exception (text for a person), error (dict), task, location, attempt, and
    ``concurrent``: further failures before the job had restarted."""

    def __init__(self, inherited: Iterable[dict[str, Any]] = ()) -> None:
        self._entries: deque[dict[str, Any]] = deque(inherited, maxlen=KEPT)
        #: Grows with every change.
        self.version = 0
        self._added: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def take_added(self) -> list[dict[str, Any]]:
        """The failures that were added since the last call. ``among_others`` in each: it is concurrent to another."""
        found = list(self._added)
        self._added.clear()
        return found

    def add(
        self,
        info: ErrorInfo,
        now_ms: int,
        *,
        job_attempt: int,
        task: str | None = None,
        location: str | None = None,
        concurrent: bool = False,
    ) -> bool:
        """Adds a failure. Returns False if so many came at the same time that this one is not kept."""
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
        self.version += 1
        self._added.append({**entry, "among_others": concurrent})
        if concurrent and self._entries:
            others: list[dict[str, Any]] = self._entries[0]["concurrent"]
            if len(others) >= KEPT:
                return False
            others.append(entry)
        else:
            self._entries.appendleft(entry)
        return True

    def add_cause(self, info: ErrorInfo, now_ms: int, *, job_attempt: int, **more: Any) -> None:
        """Adds a loss that was reported after its first symptom. If the first failure of the same attempt is
        a broken connection, the loss becomes the first entry instead."""
        first = self.latest
        symptom = (
            first is not None
            and first["attempt"] == job_attempt
            and error_from_dict(first["error"]).domain == "external"
            and not first["error"].get("lost")
        )
        if not symptom or first is None:
            self.add(info, now_ms, job_attempt=job_attempt, concurrent=True, **more)
            return
        self._entries.popleft()
        self.add(info, now_ms, job_attempt=job_attempt, **more)
        self._entries[0]["concurrent"] = [first, *first["concurrent"]][:KEPT]
        first["concurrent"] = []

    def all(self) -> list[dict[str, Any]]:
        """All failures, newest first."""
        return list(self._entries)

    @property
    def latest(self) -> dict[str, Any] | None:
        """The newest failure, or None."""
        return self._entries[0] if self._entries else None


#: Negative exit codes of a process that its own code ended. The code is likely to do so again.
_BY_ITS_OWN_CODE = frozenset(
    {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT}
)


def loss(reason: str, exit_code: int | None, *, task: str, where: str) -> dict[str, Any]:
    """The error (as a dict) of a slot whose process has ended.

    ``lost`` in it: the loss was an accident, which says nothing about the job. Otherwise the job's code
    ended the process (``os._exit``, a crash in a native library), and a repetition is no accident.
    """
    if exit_code is None or (exit_code <= 0 and exit_code not in _BY_ITS_OWN_CODE):
        error = SlotLostError(
            f"slot lost: {reason}",
            where=where,
            remedy="the job restarts from its last checkpoint; see the task manager's log for why",
        ).to_dict()
        error["lost"] = True
        return error
    how = f"exit code {exit_code}" if exit_code > 0 else f"signal {signal.Signals(-exit_code).name}"
    error = FunctionError(
        f"the job's code ended its slot's process with {how}",
        expected="code that returns, or raises what went wrong",
        got=reason,
        where=f"a function or library in {task}",
        remedy="look for os._exit() and for crashes of native libraries; the task manager's log has more",
    ).to_dict()
    error["ended"] = exit_code
    return error


_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')


def in_a_line(info: ErrorInfo) -> dict[str, str]:
    """The fields of a log line: the error as a sentence, and the innermost frame with the exception that it
    raised. The frame is the user's own, if the traceback has one; otherwise Penstock's."""
    error = error_from_dict(info.error)
    said = {"error": f"[{error.code}] {error.message}".splitlines()[0]}
    traceback = (error.user_traceback or info.traceback or "").strip()
    if frames := list(_FRAME.finditer(traceback)):
        path, line, function = frames[-1].groups()
        behind = traceback[frames[-1].end() :].splitlines()
        said["raised"] = next((text for text in behind if text and not text[0].isspace()), "")
        said["at"] = f"{path}:{line} in {function}"
    elif error.where:
        said["at"] = error.where.splitlines()[0]
    if info.operator:
        said["operator"] = info.operator
    if internal := _internal_traceback(info, error):
        said["traceback"] = internal
    return said


def describe(info: ErrorInfo) -> str:
    """The user's traceback, the message, then the place. Penstock's own frames are in the log only; for an
    internal error they come first here too, because Penstock has to be corrected."""
    error = error_from_dict(info.error)
    internal = _internal_traceback(info, error) if error.domain == "internal" else None
    parts = [internal, str(error)] if internal else [str(error)]
    if info.operator:
        parts.append(f"  operator: {info.operator}")
    if info.record:
        parts.append(f"  record:   {info.record}")
    return "\n".join(parts)


def _internal_traceback(info: ErrorInfo, error: PenstockError) -> str | None:
    """The frames of the traceback beyond the user's own, which errors show themselves."""
    user = (error.user_traceback or "").strip()
    return (info.traceback or "").strip().removeprefix(user).strip() or None
