"""Options and checks of the connector ``mqtt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.away import need_package
from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.mqtt.settings import METADATA, OPTIONS, OWNER, WRITABLE_METADATA
from penstock.connectors.simple import DeclaredConnector
from penstock.connectors.texts import KeyTemplate
from penstock.errors import ConnectorError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceContext


class MqttConnector(DeclaredConnector):
    """The connector ``mqtt``: subscribes to topics, publishes to them."""

    name = "mqtt"
    takes_format = True
    location = ("topic",)
    nested_projection = True
    metadata = METADATA
    writable_metadata = WRITABLE_METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        need_package("aiomqtt", "aiomqtt", "mqtt", OWNER)
        from penstock.connectors.mqtt.client import check_server

        format_ = message_format(table.format, where=OWNER)
        format_.check(table.schema, table.options)
        options = OPTIONS.read(table.options)
        if role == "source":
            _check_source(options)
        else:
            format_.encoder(table.schema, table.options)
            KeyTemplate(options["topic"], table.schema, OWNER, "topic")
            _check_topic(options["topic"])
        check_server(options)

    def source_guarantee(self, table: TableInfo) -> str:
        options = OPTIONS.read({"url": "", "topic": "", **table.options})
        if options["qos"] == "0":
            return "at-most-once"
        return "exactly-once" if options["use-correlation-data"] else "at-least-once"

    def sink_guarantee(self, table: TableInfo) -> str:
        return "at-most-once" if OPTIONS.read_one(table.options, "qos") == "0" else "at-least-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        return MqttEnumerator(OPTIONS.read(table.options))

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.mqtt.source import MqttReader

        return MqttReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.mqtt.sink import MqttWriter

        return MqttWriter(table)


class MqttEnumerator(SourceEnumerator):
    """A split for each filter, or with a shared group for each filter and reader. The client id is the split's, so that a job
    which starts from a savepoint under another id goes on in the session that holds its messages."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        group = self._options["shared-group"]
        prefix = self._options["client-id"] or f"penstock-{ctx.job_id}-{ctx.uid}"
        out = []
        for filter in filters_of(self._options):
            names = [filter] if group is None else [f"{filter}#{i}" for i in range(ctx.parallelism)]
            subscription = filter if group is None else f"$share/{group}/{filter}"
            out += [Split(name, {"filter": subscription, "client-id": f"{prefix}-{name}"}) for name in names]
        return [split for split in out if split.id not in known]


def filters_of(options: Mapping[str, Any]) -> list[str]:
    """The topic filters of a source."""
    return list(dict.fromkeys(name.strip() for name in options["topic"].split(";") if name.strip()))


def _check_source(options: Mapping[str, Any]) -> None:
    if not filters_of(options):
        raise _unfit("option 'topic' names no topic", "'topic' = 'rooms/+'", repr(options["topic"]))
    if options["qos"] == "2":
        # With quality 2 the broker forgets a message when it was handed over, and its client keeps it in memory.
        raise _unfit(
            "a source cannot hold messages of quality 2 until they are in a checkpoint",
            "'qos' = '1', at which the broker also gives messages that were published with 2",
            "'qos' = '2'",
        )
    if not 1 <= options["receive-maximum"] <= 65_535:
        raise _unfit(
            "option 'receive-maximum' is out of MQTT's range", "1 to 65535", str(options["receive-maximum"])
        )
    if options["qos"] == "0" and options["use-correlation-data"]:
        raise _unfit("messages of quality 0 are not sent again", "'qos' = '1'", "'qos' = '0'")
    group = options["shared-group"]
    if group is not None and options["use-correlation-data"]:
        raise _unfit(
            "a message that comes again may come to another reader of a shared group",
            "'use-correlation-data' or 'shared-group'",
            "both",
        )
    if group is not None and (not group or any(c in group for c in "/+#")):
        raise _unfit("option 'shared-group' is no name", "a name without /, + and #", repr(group))


def _check_topic(topic: str) -> None:
    if "+" in topic or "#" in topic or ";" in topic:
        raise _unfit("a sink writes to topics", "a topic without +, # and ;", repr(topic))


def _unfit(what: str, expected: str, got: str) -> ConnectorError:
    return ConnectorError(what, expected=expected, got=got, where=OWNER, remedy="correct the table's options")
