"""Encodes batches as messages for a sink: (subject, payload, headers)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.connectors.nats.client import BATCH_HEADER
from penstock.connectors.nats.subjects import SubjectTemplate, is_subject
from penstock.errors import RecordError
from penstock.formats import get_format
from penstock.formats.reporting import redact, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch

_BATCH_HEADERS = {BATCH_HEADER: "true"}
#: Bytes of a message of the greatest size that are reserved for headers and the protocol.
_OVERHEAD_BYTES = 1024


class OutMessage(NamedTuple):
    """A message to publish."""

    subject: str
    data: bytes
    headers: dict[str, str] | None


class MessageEncoder:
    """Makes one message for each row, or with ``message.batch`` one for up to ``sink.batch-rows`` rows of one
    subject. A row that is too large for a message is a bad record."""

    def __init__(self, table: TableInfo, options: Mapping[str, Any], ctx: SourceContext) -> None:
        self.template = SubjectTemplate(options["subject"], table.schema)
        self._encoder = get_format(table.options["format"]).encoder(table.schema, table.options)
        self._batched = options["message.batch"]
        self._rows = max(1, options["sink.batch-rows"])
        self._ctx = ctx
        self.max_payload = 1 << 20

    async def open(self) -> None:
        """Open the encoder; must be called before the first batch."""
        await self._encoder.open()

    def encode(self, batch: Batch, own: Sequence[str | None] | None = None) -> list[OutMessage]:
        """The messages of a batch; rows that a policy rejects are left out. ``own``: the subject of each row,
        None where the template says it."""
        subjects = self._subjects(batch, own)
        if self._batched:
            return self._encode_batched(batch, subjects)
        limit = self.max_payload - _OVERHEAD_BYTES
        out = []
        for i, (subject, data) in enumerate(zip(subjects, self._encoder.encode(batch), strict=True)):
            if subject is None:
                continue
            if len(data) > limit:
                self._too_big(batch.slice(i, 1), len(data))
                continue
            out.append(OutMessage(subject, data, None))
        return out

    def _subjects(self, batch: Batch, own: Sequence[str | None] | None) -> list[str | None]:
        if own is None:
            return self.template.subjects(batch, lambda i, err: self._reject(batch.slice(i, 1), err))

        def of_template(i: int, err: RecordError) -> None:
            if own[i] is None:
                self._reject(batch.slice(i, 1), err)

        subjects = self.template.subjects(batch, of_template)
        for i, subject in enumerate(own):
            if subject is None:
                continue
            subjects[i] = subject if is_subject(subject) else None
            if subjects[i] is None:
                error = RecordError(
                    "column 'subject' holds no subject of NATS",
                    expected="tokens joined by dots, without blanks and wildcards",
                    got=shorten(subject),
                )
                self._reject(batch.slice(i, 1), error)
        return subjects

    def _encode_batched(self, batch: Batch, subjects: list[str | None]) -> list[OutMessage]:
        out: list[OutMessage] = []
        names = np.array([s or "" for s in subjects], dtype=object)
        for subject in dict.fromkeys(s for s in subjects if s is not None):
            part = batch.filter(names == subject)
            for start in range(0, len(part), self._rows):
                out.extend(self._pack(subject, part.slice(start, self._rows)))
        return out

    def _pack(self, subject: str, rows: Batch) -> list[OutMessage]:
        data = self._encoder.encode_batch(rows)
        if len(data) <= self.max_payload - _OVERHEAD_BYTES:
            return [OutMessage(subject, data, _BATCH_HEADERS)]
        if len(rows) == 1:
            self._too_big(rows, len(data))
            return []
        half = len(rows) // 2
        return self._pack(subject, rows.slice(0, half)) + self._pack(subject, rows.slice(half))

    def _too_big(self, row: Batch, size: int) -> None:
        error = RecordError(
            "a row is larger than a message may be",
            expected=f"at most {self.max_payload - _OVERHEAD_BYTES} bytes (the server's max_payload)",
            got=f"{size} bytes",
            remedy="raise max_payload in the server's configuration, or send less in a row",
        )
        self._reject(row, error)

    def _reject(self, row: Batch, error: RecordError) -> None:
        text = repr(row.to_pylist()[0])
        error.got = f"{error.got}; row (redacted): {redact(text.replace(chr(39), chr(34)))}"
        self._ctx.bad_record(error, text.encode(), f"sink {self._ctx.uid}")
