"""The options of the connectors of HTTP. Those of the sink and of lookups have the keys of the HTTP connectors of Flink:
``http.…``, also written ``gid.connector.http.…``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import one_of, parse_duration_ms
from penstock.connectors.base import TableInfo
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.errors import SpecError
from penstock.options import Option, OptionSet, boolean, bytes_size, duration_ms, positive, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'http'"
_OTHER_PREFIX = "gid.connector.http."
SINK_HEADER, LOOKUP_HEADER, HEADER = "http.sink.header.", "http.source.lookup.header.", "header."
#: Statuses after which another attempt may succeed.
RETRY_CODES = "408,425,429,500,502,503,504"

Codes = frozenset[int]


def status_codes(value: str) -> Codes:
    """Statuses: ``2XX, 404, !418``; ``!`` takes away.

    Raises:
        SpecError: ``value`` is something else.
    """
    found: set[int] = set()
    gone: set[int] = set()
    for word in filter(None, (word.strip() for word in value.split(","))):
        into, code = (gone, word[1:]) if word[0] == "!" else (found, word)
        if len(code) != 3 or code[0] not in "12345" or not (code[1:].isdigit() or code[1:].upper() == "XX"):
            raise SpecError("no status of HTTP", expected="e.g. 200, 2XX or !404", got=repr(word))
        first = int(code[0]) * 100
        into.update(range(first, first + 100) if not code.isdigit() else (int(code),))
    return frozenset(found - gone)


def seconds_or_duration(value: str) -> int:
    """A duration in ms. A bare number is one of seconds, as in the connectors of Flink."""
    return int(value) * 1000 if value.strip().isdigit() else parse_duration_ms(value)


OPTIONS = OptionSet(
    OWNER,
    [
        Option("url", text, None, "Where requests go: http://… or https://…, for lookups and requests of a row each with columns in it: '…/{id}'."),
        Option("http.request.timeout", seconds_or_duration, 30_000, "How long a request may take; a number alone: seconds."),
        Option("http.connection.timeout", seconds_or_duration, 5_000, "How long connecting may take."),
        Option("http.security.cert.server", text, None, "A PEM file of authorities; default: those of the system."),
        Option("http.security.cert.client", text, None, "A PEM file of the client's certificate."),
        Option("http.security.key.client", text, None, "A PEM file of the client's key."),
        Option("http.security.cert.server.allowSelfSigned", boolean, False, "Accept certificates that cannot be checked."),
        # Web hook.
        Option("listen", text, None, "Web hook: host:port where requests are taken.", role="source"),
        Option("path", text, "/", "Web hook: the path of requests.", role="source"),
        Option("token", text, None, "Web hook: requests need 'Authorization: Bearer <token>'.", role="source"),
        Option("allow-anonymous", boolean, False, "Web hook: take requests without a token from other machines.", role="source"),
        Option("tls.certificate", text, None, "Web hook: a PEM file of the server's certificate.", role="source"),
        Option("tls.key", text, None, "Web hook: a PEM file of the server's key.", role="source"),
        Option("answer", one_of("checkpoint", "received"), "checkpoint", "Web hook: answer when the checkpoint that holds the rows is complete, or at once.", role="source"),
        Option("request-id.header", text, None, "Web hook: a header with the request's own id; a request that comes again is not read again.", role="source"),
        Option("scan.id-retention", duration_ms, 600_000, "Web hook: how long the id of a request is remembered after its answer.", role="source"),
        Option("request.max-size", bytes_size, 1 << 20, "Web hook: bytes of a request's body.", role="source"),
        Option("request.max-pending", positive, 1_000, "Web hook: requests without an answer; more are answered 503.", role="source"),
        # Polling.
        Option("poll.interval", duration_ms, 10_000, "Polling: the pause between two rounds.", role="source"),
        Option("scan.bounded.mode", one_of("unbounded", "latest"), "unbounded", "Polling: latest: one round only.", role="source"),
        Option("pagination", one_of("none", "link", "url", "cursor"), "none", "Polling: where the next page is told: in the header Link, in the answer as an address, or as a cursor.", role="source"),
        Option("pagination.pointer", text, None, "Polling: JSON pointer to the next page's address or cursor: '/meta/next'.", role="source"),
        Option("pagination.parameter", text, "cursor", "Polling: the parameter that takes the cursor.", role="source"),
        Option("pagination.resume", boolean, False, "Polling: a round goes on from the last cursor instead of the first page.", role="source"),
        # Bodies.
        Option("body", one_of("record", "array", "lines"), None, "What a body holds: one record, a JSON array of records, or one a line. Default: record; of a polled address array.", role="source"),
        Option("body.pointer", text, None, "JSON pointer to the record or array in the body: '/data/items'.", role="source"),
        # Lookup.
        Option("lookup-method", one_of("GET", "POST", "PUT"), "GET", "How keys are asked for: as parameters, or as a JSON body.", role="source"),
        Option("asyncPolling", boolean, True, "Without effect: lookups never block.", role="source"),
        Option("http.source.lookup.request.timeout", seconds_or_duration, None, "For lookups, instead of 'http.request.timeout'.", role="source"),
        Option("http.source.lookup.connection.timeout", seconds_or_duration, None, "For lookups, instead of 'http.connection.timeout'.", role="source"),
        Option("http.source.lookup.request.thread-pool.size", positive, 16, "Lookups under way at a time.", role="source"),
        Option("http.source.lookup.result-type", one_of("single-value", "array"), "single-value", "Whether an answer is a row or an array of rows.", role="source"),
        Option("http.source.lookup.success-codes", status_codes, status_codes("2XX"), "Statuses of an answer.", role="source"),
        Option("http.source.lookup.ignored-response-codes", status_codes, status_codes("404"), "Statuses of a key without rows.", role="source"),
        Option("http.source.lookup.retry-codes", status_codes, status_codes(RETRY_CODES), "Statuses after which the key is asked for again.", role="source"),
        *LOOKUP_OPTIONS,
        # Sink.
        Option("insert-method", one_of("POST", "PUT", "PATCH"), "POST", "The method of requests.", role="sink"),
        Option("http.sink.request.timeout", seconds_or_duration, None, "Instead of 'http.request.timeout'.", role="sink"),
        Option("http.sink.writer.request.mode", one_of("batch", "single"), None, "A JSON array of rows in each request, or one row. Default: batch for JSON.", role="sink"),
        Option("http.sink.request.batch.size", positive, 500, "Rows of a request.", role="sink"),
        Option("http.sink.writer.thread-pool.size", positive, 1, "With 'single', requests under way at a time; 1 keeps the order of rows.", role="sink"),
        Option("http.sink.success-codes", status_codes, status_codes("2XX"), "Statuses of a request that was taken.", role="sink"),
        Option("http.sink.retry-codes", status_codes, status_codes(RETRY_CODES), "Statuses after which a request is sent again.", role="sink"),
        Option("http.sink.idempotency-header", text, "Idempotency-Key", "The header with the request's own key; empty: none.", role="sink"),
        Option("sink.delivery-guarantee", one_of("at-least-once", "exactly-once"), "at-least-once", "exactly-once: send when the checkpoint is complete, with keys by which the receiver knows a repetition.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
    ],
    prefixes=(SINK_HEADER, LOOKUP_HEADER, HEADER),
)  # fmt: skip

#: What a request of a web hook, or an answer of a polled address, says beside the record.
METADATA: Mapping[str, Any] = {
    "url": t.VarCharType(),
    "headers": t.MapType(t.VarCharType(nullable=False), t.VarCharType(), nullable=False),
    "request-id": t.VarCharType(),
    "remote-address": t.VarCharType(),
    "timestamp": t.TimestampLtzType(3, nullable=False),
}


def own_keys(options: Mapping[str, str]) -> dict[str, str]:
    """The options with ``gid.connector.http.…`` written ``http.…``."""
    return {
        f"http.{key.removeprefix(_OTHER_PREFIX)}" if key.startswith(_OTHER_PREFIX) else key: value
        for key, value in options.items()
    }


def own_table(table: TableInfo) -> TableInfo:
    """The table with keys as in ``OPTIONS``."""
    options = own_keys(table.options)
    return TableInfo(table.schema, options, options.get("format"), table.primary_key)


def headers_of(options: Mapping[str, str], *more: str) -> dict[str, str]:
    """The headers that a table's options name, with ``header.`` and one of the prefixes ``more``."""
    out: dict[str, str] = {}
    for prefix in (HEADER, *more):
        out |= {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    return out
