"""The ids of topics (KIP-516). A topic that was deleted and created again has the same name but other
offsets; its id tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.kafka.client import ANSWER_S, failure, patiently
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Sixteen zero bytes in base64: the id that a broker without topic ids returns.
_NO_ID = "A" * 22


def topic_ids(properties: Mapping[str, str], names: Iterable[str], where: str) -> dict[str, str]:
    """The id of each topic, from the brokers; brokers older than 2.8 give none. Blocks.

    ConnectorError if a topic does not exist or may not be described, BrokerError if no broker answers.
    """
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient

    others = ("group.id", "auto.offset.reset")
    admin = AdminClient({**{k: v for k, v in properties.items() if k not in others}, "log_level": 0})
    answers = admin.describe_topics(ck.TopicCollection(list(names)), request_timeout=ANSWER_S)
    found = {}
    for name, answer in answers.items():
        try:
            topic_id = str(patiently(answer.result).topic_id)
        except ck.KafkaException as err:
            raise failure(err.args[0], f"topic '{name}' cannot be described", where) from None
        if topic_id != _NO_ID:
            found[name] = topic_id
    return found


def check_same_topics(known: Mapping[str, str], found: Mapping[str, str], where: str) -> None:
    """ConnectorError for a topic whose id is not the ``known`` one."""
    for name, topic_id in known.items():
        if found.get(name, topic_id) != topic_id:
            raise ConnectorError(
                f"topic '{name}' is another one than was read before: it was deleted and made anew",
                expected=f"the topic with id {topic_id}, in which the offsets of this state count",
                got=f"one with id {found[name]}: which of its messages were read cannot be told",
                where=where,
                remedy="to read the new topic from its beginning, start without this state",
            )
