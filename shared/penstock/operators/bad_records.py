"""Records that cannot be processed: fail, skip (and count), or keep as dead letters (``operators.letters``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import InternalError, PenstockError, RecordError
from penstock.operators.letters import MAX_TEXT_BYTES, Letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.operators.operator import OperatorContext

#: Why a record that holds no bytes of a message cannot be sent again.
NO_MESSAGE = "the letter holds the row as text: only what a source could not read is sent again"


class BadRecords:
    """Applies the ``on-error`` policy of an operator in one subtask: "fail", "skip" or "dead-letter"."""

    def __init__(self, ctx: OperatorContext, on_error: Literal["fail", "skip", "dead-letter"]) -> None:
        self._ctx = ctx
        self._on_error = on_error
        if on_error == "dead-letter" and ctx.letters is None:
            raise InternalError("on-error = dead-letter needs the job's object store", where=ctx.name)

    def record(
        self,
        error: BaseException,
        record: Any,
        where: str,
        message: Mapping[str, Any] | None = None,
        kept: str = NO_MESSAGE,
    ) -> None:
        """Count a record that caused ``error``; raise RecordError, drop the record or keep it, as the policy says.

        Args:
            error: Why it cannot be processed.
            record: Its bytes, or the record itself.
            where: Its position.
            message: What its source needs to read it again.
            kept: Without ``message``: why it cannot be sent again.
        """
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
            self.keep(error, raw, where, message, kept)

    def keep(
        self,
        error: BaseException,
        record: Any,
        where: str,
        message: Mapping[str, Any] | None = None,
        kept: str = NO_MESSAGE,
    ) -> None:
        """Keep a record that was counted before as a dead letter (``record`` has the arguments). Raises RecordError if
        there are too many since the last checkpoint."""
        raw = record if isinstance(record, bytes | None) else repr(record).encode()
        letter = Letter(
            operator=self._ctx.name,
            where=where,
            error=str(error),
            record=None if raw is None else raw[:MAX_TEXT_BYTES].decode("utf-8", "replace"),
            raw=raw,
            time_ms=self._ctx.now_ms(),
            message=None if message is None else dict(message),
            kept="" if message is not None else kept,
        )
        assert self._ctx.letters is not None
        self._ctx.letters.add(letter, error)


def _shorten(raw: bytes, limit: int = 200) -> str:
    text = raw[:limit].decode("utf-8", "replace")
    return text + ("…" if len(raw) > limit else "")
