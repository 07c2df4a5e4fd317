"""The options and metadata columns of the Kafka connectors, with Flink's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import Option, OptionSet, choice, duration_ms, integer, positive, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The prefix of options that go to the client. Options with other prefixes belong to formats, which check
#: them.
PROPERTIES = "properties."
KEY, VALUE = "key.", "value."

_STARTS = ("group-offsets", "earliest-offset", "latest-offset", "timestamp", "specific-offsets")
_ENDS = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")

_PARTITIONERS = ("default", "fixed", "round-robin")

_BOTH = [
    Option("topic", text, None, "The topic; a source takes several, ';' between."),
    Option("key.format", text, None, "The format of message keys."),
    Option("value.format", text, None, "The format of message values; 'format' says the same."),
    Option("key.fields-prefix", text, "", "What the names of key columns begin with, and names in the key do not."),
    Option("value.fields-include", choice("ALL", "EXCEPT_KEY"), "ALL", "Whether values hold the key's columns, too."),
    Option("scan.bounded.mode", choice(*_ENDS), "unbounded", "Where reading ends.", role="source"),
    Option("scan.bounded.specific-offsets", text, None, "For mode 'specific-offsets': partition:0,offset:42;partition:1,offset:300.", role="source"),
    Option("scan.bounded.timestamp-millis", integer, None, "For mode 'timestamp': ends before the first message of this time.", role="source"),
    Option("scan.topic-partition-discovery.interval", duration_ms, 300_000, "Between looks for new partitions and topics; 0: one look at the start.", role="source"),
    Option("sink.delivery-guarantee", choice("at-least-once", "exactly-once", "none"), "at-least-once", "exactly-once: rows show when their checkpoint is complete, in one transaction.", role="sink"),
    Option("topic-pattern", text, None, "A regular expression: reads all topics whose whole names match.", role="source"),
    Option("scan.parallelism", positive, None, "Subtasks that read; default: the job's parallelism.", role="source"),
    Option("sink.parallelism", positive, None, "Subtasks that write; default: those of the operator before.", role="sink"),
    Option("sink.transactional-id-prefix", text, None, "Names the exactly-once sink at the broker; default is job and operator.", role="sink"),
]  # fmt: skip

KAFKA_OPTIONS = OptionSet(
    "connector 'kafka'",
    [
        *_BOTH,
        Option("key.fields", text, None, "Columns of the key, ';' between."),
        Option("scan.startup.mode", choice(*_STARTS), "group-offsets", "Where reading starts.", role="source"),
        Option("scan.startup.specific-offsets", text, None, "For mode 'specific-offsets': partition:0,offset:42;partition:1,offset:300.", role="source"),
        Option("scan.startup.timestamp-millis", integer, None, "For mode 'timestamp': starts at the first message of this time or later.", role="source"),
        Option("sink.partitioner", choice(*_PARTITIONERS), "default", "default: by the key, as Kafka's own clients do; fixed: a subtask writes to one partition.", role="sink"),
    ],
    prefixes=(PROPERTIES,),
)  # fmt: skip

UPSERT_OPTIONS = OptionSet(
    "connector 'upsert-kafka'",
    [
        *_BOTH,
        Option("sink.buffer-flush.max-rows", integer, 0, "With the interval: only the newest row of a key is written, when so many keys have come; 0: every row.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 0, "With max-rows: rows are held back for no longer than this; 0: never.", role="sink"),
    ],
    prefixes=(PROPERTIES,),
)  # fmt: skip

#: Options of Flink that are refused by name: key → (why, what to do).
REFUSED: Mapping[str, tuple[str, str]] = {
    "sink.transaction-naming-strategy": (
        "a subtask has one transactional id for all its transactions, so there is no strategy to choose",
        "remove it",
    ),
}

#: What a sink writes; NULL: the time of sending, no headers.
WRITABLE_METADATA: Mapping[str, Any] = {
    "headers": t.MapType(t.VarCharType(nullable=False), t.VarBinaryType()),
    "timestamp": t.TimestampLtzType(3),
}

METADATA: Mapping[str, Any] = {
    "topic": t.VarCharType(nullable=False),
    "partition": t.IntType(nullable=False),
    "headers": t.MapType(t.VarCharType(nullable=False), t.VarBinaryType(), nullable=False),
    "leader-epoch": t.IntType(),
    "offset": t.BigIntType(nullable=False),
    "timestamp": t.TimestampLtzType(3, nullable=False),
    "timestamp-type": t.VarCharType(nullable=False),
}
