"""What the brokers tell of a table before its job starts: whether its topics exist, whether the user may read
or write them, and the limits that an exactly-once sink runs into."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.kafka.client import Refused, failure
from penstock.errors import BrokerError, ConnectorError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_log = EventLog("penstock.connectors.kafka")

#: How long brokers may take to answer while a job is planned, in seconds.
_ANSWER_S = 10.0
_LOOK_S = 0.2
#: How long an answer counts: a statement may name a table several times.
_FRESH_S = 10.0
#: A retention of offsets below this is worth a warning: an exactly-once job that is down for longer cannot be
#: restored with the rows that it had staged.
_SHORT_RETENTION_MINUTES = 24 * 60
#: How long the broker keeps an abandoned transaction open, unless a property says otherwise.
TRANSACTION_TIMEOUT_MS = "300000"

Role = Literal["source", "sink"]
_checked: dict[Any, float] = {}


def check_at_brokers(
    properties: Mapping[str, str], topics: Iterable[str], role: Role, where: str, *, transactional: bool
) -> None:
    """ConnectorError for a topic that is not there or not allowed, and for limits of the broker that the table
    exceeds. Brokers that do not answer are left to the job, which waits for them. Blocks."""
    names = sorted({name.strip() for name in topics if name.strip()})
    known = (tuple(sorted(properties.items())), tuple(names), role, transactional)
    if time.monotonic() - _checked.get(known, -_FRESH_S) < _FRESH_S:
        return
    brokers = _Brokers(properties, f"{where}, {properties['bootstrap.servers']}")
    try:
        if not brokers.reached():
            _log.warning("kafka_not_checked", where=brokers.where, error="no broker answers")
            return
        settings = brokers.settings()
        _check_topics(brokers, names, role, settings)
        if transactional:
            _check_limits(brokers, properties, settings)
    except BrokerError as err:
        _log.warning("kafka_not_checked", where=brokers.where, error=str(err.got))
        return
    _checked[known] = time.monotonic()


class _Brokers:
    def __init__(self, properties: Mapping[str, str], where: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.where = where
        self._refused = Refused()
        self._away = False
        others = (
            "group.id",
            "auto.offset.reset",
            "transaction.timeout.ms",
            "message.timeout.ms",
            "isolation.level",
        )
        given = {k: v for k, v in properties.items() if k not in others}
        config: dict[str, Any] = {**given, "error_cb": self._note, "log_level": 0}
        self._client = AdminClient(config)
        self._id: int | None = None

    def _note(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        self._refused(error)
        self._away |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def reached(self) -> bool:
        """Whether a broker answers. ConnectorError if it refuses the user."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + _ANSWER_S
        while time.monotonic() < until and not self._away:
            try:
                self._id = next(iter(self._client.list_topics(timeout=_LOOK_S).brokers), None)
                return self._id is not None
            except KafkaException as err:
                self._client.poll(0)
                if self._refused.error is not None:
                    raise failure(self._refused.error, "the brokers refuse the user", self.where) from None
                found = failure(err.args[0], "the brokers refuse the request", self.where)
                if isinstance(found, ConnectorError):
                    raise found from None
        return False

    def settings(self) -> Mapping[str, str]:
        """The settings of one broker; empty if this user may not see them."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin._config import ConfigResource

        resource = ConfigResource(ConfigResource.Type.BROKER, str(self._id))
        [answer] = self._client.describe_configs([resource], request_timeout=_ANSWER_S).values()
        try:
            return {name: str(entry.value) for name, entry in answer.result().items()}
        except KafkaException as err:
            _log.info("kafka_setting_not_read", where=self.where, error=err.args[0].str())
            return {}

    def topic(self, name: str) -> Any:
        """The description of a topic with what the user may do; KafkaException if there is none."""
        import confluent_kafka as ck

        answers = self._client.describe_topics(
            ck.TopicCollection([name]), include_authorized_operations=True, request_timeout=_ANSWER_S
        )
        return answers[name].result()


def _check_topics(brokers: _Brokers, names: Iterable[str], role: Role, settings: Mapping[str, str]) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin._acl import AclOperation

    needed = AclOperation.READ if role == "source" else AclOperation.WRITE
    made_by_writing = role == "sink" and settings.get("auto.create.topics.enable") == "true"
    for name in names:
        what = f"topic '{name}' cannot be {'read' if role == 'source' else 'written'}"
        try:
            found = brokers.topic(name)
        except KafkaException as err:
            if err.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and made_by_writing:
                continue
            raise failure(err.args[0], what, brokers.where) from None
        allowed = found.authorized_operations
        if allowed is not None and needed not in allowed and AclOperation.ALL not in allowed:
            raise ConnectorError(
                what,
                expected=f"the right to {needed.name} the topic",
                got="the rights " + (", ".join(sorted(op.name for op in allowed)) or "(none)"),
                where=brokers.where,
                remedy=f"grant the user of the table {needed.name} on topic '{name}'",
            )


def _check_limits(brokers: _Brokers, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
    timeout = int(properties.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    most = int(settings.get("transaction.max.timeout.ms", timeout))
    if timeout > most:
        raise ConnectorError(
            "the transactions of an exactly-once sink may last longer than the broker allows",
            expected=f"'properties.transaction.timeout.ms' of no more than the broker's transaction.max.timeout.ms ({most})",
            got=str(timeout),
            where=brokers.where,
            remedy=f"set 'properties.transaction.timeout.ms' = '{most}', or raise the broker's limit",
        )
    kept = settings.get("offsets.retention.minutes")
    if kept is not None and int(kept) < _SHORT_RETENTION_MINUTES:
        _log.warning("kafka_short_retention", where=brokers.where, minutes=int(kept))
