"""Records that cannot be processed: fail, skip (and count), or keep as dead letters.

Dead letters are objects of JSON lines in the job's object store. They are written at checkpoints and at the end
of the input: ``jobs/<job_id>/dead-letters/<uid>/<attempt>-<subtask>-<n>``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.errors import InternalError, PenstockError, RecordError

if TYPE_CHECKING:
    from penstock.operators.operator import OperatorContext

#: The most dead letters in memory between two checkpoints. With more the task fails, because it may lose none.
MAX_DEAD_LETTERS = 10_000
#: The most bytes of all their records. A letter holds its record whole, so that it can be sent again.
MAX_DEAD_LETTER_BYTES = 64 << 20
#: The most bytes of a record that a dead letter shows as text.
MAX_TEXT_BYTES = 4096


class BadRecords:
    """Applies the ``on-error`` policy of an operator in one subtask: "fail", "skip" or "dead-letter"."""

    def __init__(self, ctx: OperatorContext, on_error: Literal["fail", "skip", "dead-letter"]) -> None:
        self._ctx = ctx
        self._on_error = on_error
        self._letters: list[bytes] = []
        self._bytes = 0
        self._objects = 0
        if on_error == "dead-letter" and ctx.store is None:
            raise InternalError("on-error = dead-letter needs the job's object store", where=ctx.name)

    def record(self, error: BaseException, record: Any, where: str) -> None:
        """Count a record that caused ``error``; raise RecordError, drop the record or keep it, as the policy says."""
        raw = record if isinstance(record, bytes | None) else repr(record).encode()
        self._ctx.metrics.inc("numRecordsInErrors")
        if self._on_error == "fail":
            if isinstance(error, PenstockError):
                raise error
            raise RecordError(
                f"a record cannot be read: {error}",
                got=None if raw is None else _shorten(raw),
                where=f"{self._ctx.name}: {where}",
                remedy="correct the data, or set 'on-error' = 'skip' or 'dead-letter'",
            ) from error
        if self._on_error == "dead-letter":
            self.keep(error, raw, where)

    def keep(self, error: BaseException, record: Any, where: str) -> None:
        """Keep a record that was counted before as a dead letter. Raises RecordError above MAX_DEAD_LETTERS, and above
        MAX_DEAD_LETTER_BYTES."""
        raw = record if isinstance(record, bytes | None) else repr(record).encode()
        self._bytes += len(raw or b"")
        if len(self._letters) >= MAX_DEAD_LETTERS or self._bytes > MAX_DEAD_LETTER_BYTES:
            raise RecordError(
                "too many bad records since the last checkpoint",
                expected=f"at most {MAX_DEAD_LETTERS}, with at most {MAX_DEAD_LETTER_BYTES} bytes",
                where=f"{self._ctx.name}: {where}",
                got=str(error),
                remedy="this is no longer the odd bad record: check the format of the input",
            ) from error
        letter = {
            "operator": self._ctx.name,
            "where": where,
            "error": str(error),
            "record": None if raw is None else raw[:MAX_TEXT_BYTES].decode("utf-8", "replace"),
            "bytes": raw,
            "time_ms": self._ctx.now_ms(),
        }
        self._letters.append(msgspec.json.encode(letter))

    async def flush(self) -> dict[str, list[bytes]]:
        """Write the dead letters to the object store. The empty result suits ``OperatorSnapshot.pending``."""
        letters, self._letters, self._bytes = self._letters, [], 0
        if letters:
            ctx = self._ctx
            assert ctx.store is not None
            name = f"{ctx.attempt:06d}-{ctx.subtask_index:05d}-{self._objects:08d}"
            self._objects += 1
            key = f"jobs/{ctx.job_id}/dead-letters/{ctx.uid}/{name}"
            await ctx.store.put(key, b"\n".join(letters) + b"\n")
        return {}


def _shorten(raw: bytes, limit: int = 200) -> str:
    text = raw[:limit].decode("utf-8", "replace")
    return text + ("…" if len(raw) > limit else "")
