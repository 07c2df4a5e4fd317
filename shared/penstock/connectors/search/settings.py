"""The options of ``elasticsearch-7``, ``elasticsearch-8`` and ``opensearch``, with Flink's keys."""

from __future__ import annotations

from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.options import Option, OptionSet, boolean, bytes_size, choice, duration_ms, integer, text


def options_of(name: str) -> OptionSet:
    """The options of the connector ``name``."""
    return OptionSet(
        f"connector '{name}'",
        [
            Option("hosts", text, None, "http://host:9200, ';' between several.", required=True),
            Option("index", text, None, "The index, with columns and times in it: 'orders-{at|yyyy-MM-dd}'.", required=True),
            Option("document-id.key-delimiter", text, "_", "Stands between the values of a primary key in a document's id. A value's own gets a backslash where two keys could have one id."),
            Option("username", text, None, "To log in with."),
            Option("password", text, None, "To log in with."),
            Option("connection.path-prefix", text, "", "Stands before each path of a request."),
            Option("connection.request-timeout", duration_ms, 30_000, "How long a request may take."),
            Option("connection.timeout", duration_ms, 5_000, "How long connecting may take."),
            Option("socket.timeout", duration_ms, 30_000, "How long the server may say nothing."),
            Option("allow-insecure", boolean, False, "Accept certificates that cannot be checked."),
            Option("sink.delivery-guarantee", choice("at-least-once", "none"), "at-least-once", "none: checkpoints do not wait."),
            Option("sink.flush-on-checkpoint", boolean, True, "false: as 'sink.delivery-guarantee' = 'none'."),
            Option("sink.bulk-flush.max-actions", integer, 1000, "Documents of one request."),
            Option("sink.bulk-flush.max-size", bytes_size, 2 << 20, "Bytes of one request."),
            Option("sink.bulk-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load."),
            Option("sink.bulk-flush.backoff.strategy", choice("DISABLED", "CONSTANT", "EXPONENTIAL"), None, "How documents that were not taken are sent again; default: for ever."),
            Option("sink.bulk-flush.backoff.max-retries", integer, None, "How often, with CONSTANT and EXPONENTIAL."),
            Option("sink.bulk-flush.backoff.delay", duration_ms, None, "Time before the first retry."),
            *LOOKUP_OPTIONS,
        ],
    )  # fmt: skip
