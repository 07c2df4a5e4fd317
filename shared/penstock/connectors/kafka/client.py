"""librdkafka's clients: configures them from options, and turns their errors into Penstock's."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import threading
import time
import weakref
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.settings import PROPERTIES
from penstock.errors import BrokerError, ConnectorError, PenstockError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError

    _Call = tuple[asyncio.Future[Any], Callable[[], Any]]

_log = EventLog("penstock.connectors.kafka")

#: How long a broker may take to answer a request, in seconds.
ANSWER_S = 30.0
#: The timeout of one attempt of a request that is repeated until ``ANSWER_S``, in seconds.
_LOOK_S = 2.0
#: Pauses between attempts while the brokers elect a partition's leader or a group's coordinator.
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2)

#: Properties of the Java client that librdkafka does not have, and what to do instead.
_JAVA_ONLY = {
    "ssl.truststore.location": "convert the store to PEM and set 'properties.ssl.ca.location'",
    "ssl.truststore.password": "convert the store to PEM and set 'properties.ssl.ca.location'",
    "ssl.truststore.type": "convert the store to PEM and set 'properties.ssl.ca.location'",
    "ssl.keystore.type": "convert the store to PEM or PKCS#12",
    "max.poll.records": "remove it: a batch holds what the task has room for",
    "partition.discovery.interval.ms": "set 'scan.topic-partition-discovery.interval'",
}
#: Properties that the connector itself sets.
_OURS = {
    "enable.auto.commit": "remove it: offsets are committed with checkpoints where 'properties.group.id' is set",
    "enable.auto.offset.store": "remove it: offsets are kept in checkpoints",
    "enable.partition.eof": "remove it",
    "transactional.id": "set 'sink.transactional-id-prefix'",
    "enable.idempotence": "remove it: the producer is always idempotent",
    "key.deserializer": "remove it and set 'key.format'",
    "value.deserializer": "remove it and set 'value.format'",
    "key.serializer": "remove it and set 'key.format'",
    "value.serializer": "remove it and set 'value.format'",
}
_JAAS_LOGIN = re.compile(r"""(\w+)\s*=\s*["']([^"']*)["']""")


def need_client(owner: str) -> None:
    """ConnectorError that names the extra where the client library is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConnectorError(
            "Kafka's client library is not installed",
            expected="the Python package confluent-kafka",
            got="no such package",
            where=owner,
            remedy="pip install 'penstock[kafka]', on every machine that plans or runs the job",
        )


def client_properties(options: Mapping[str, str], owner: str) -> dict[str, str]:
    """The ``properties.…`` of a table as librdkafka's properties; ConnectorError for one that would have no
    effect."""
    found: dict[str, str] = {}
    for key, value in options.items():
        if not key.startswith(PROPERTIES):
            continue
        name = key.removeprefix(PROPERTIES)
        if name == "sasl.jaas.config":
            found |= _login(value, owner)
        elif name in _JAVA_ONLY or name in _OURS:
            raise ConnectorError(
                f"option '{key}' has no effect",
                expected="a property of librdkafka that Penstock leaves to the user",
                got=f"'{key}'",
                where=owner,
                remedy=_JAVA_ONLY.get(name) or _OURS[name],
            )
        else:
            found[name] = value
    if not found.get("bootstrap.servers"):
        raise ConnectorError(
            "option 'properties.bootstrap.servers' is missing",
            expected="'properties.bootstrap.servers' = 'host:9092,…'",
            got="no such option",
            where=owner,
            remedy="add 'properties.bootstrap.servers' to the table's WITH clause",
        )
    return found


def _login(jaas: str, owner: str) -> dict[str, str]:
    """The user and password in the Java client's ``sasl.jaas.config``."""
    words = dict(_JAAS_LOGIN.findall(jaas))
    if "username" not in words or "password" not in words:
        raise ConnectorError(
            "option 'properties.sasl.jaas.config' names no user and password",
            expected='org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";',
            got="another login module, or none",
            where=owner,
            remedy="set 'properties.sasl.username' and 'properties.sasl.password', or librdkafka's properties of the mechanism",
        )
    return {"sasl.username": words["username"], "sasl.password": words["password"]}


def check_properties(options: Mapping[str, str], owner: str) -> None:
    """ConnectorError for a property that librdkafka does not know or that has a wrong value. Asks no broker."""
    need_client(owner)
    import confluent_kafka

    properties = client_properties(options, owner)
    # Both kinds of client take each other's properties, with a warning; without servers neither connects.
    given = {k: v for k, v in properties.items() if k not in ("bootstrap.servers", "auto.offset.reset")}
    try:
        confluent_kafka.Consumer({**given, "group.id": "penstock", "log_level": 0}).close()
    except confluent_kafka.KafkaException as err:
        raise ConnectorError(
            "a property of the Kafka client is not in order",
            expected="properties of librdkafka, with its values",
            got=str(err.args[0].str()),
            where=f"{owner}, 'properties.…'",
            remedy="correct it, or remove it",
        ) from None


class Caller:
    """A thread for calls of one client that block in native code, which releases the interpreter's lock.

    The slot's helper thread serves all operators, and a client may wait for a broker for seconds. No process
    waits for the thread at its end, because a call of the client may never return.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._started = self._closed = False

    def call(self, loop: asyncio.AbstractEventLoop, f: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call ``f(*args)`` in the thread, after the earlier calls."""
        if self._closed:
            raise RuntimeError(f"{self._name} is closed")
        if not self._started:
            self._started = True
            threading.Thread(target=_work, args=(self._calls,), name=self._name, daemon=True).start()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((future, partial(f, *args)))
        return future

    def close(self) -> None:
        """Accept no further calls; does not wait for calls under way."""
        self._closed = True
        self._calls.put(None)


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        _make(*call)
        del call  # a client that nobody else holds is closed now


def _make(future: asyncio.Future[Any], f: Callable[[], Any]) -> None:
    try:
        answer = partial(_answer, future, f(), None)
    except BaseException as err:  # whoever awaits the future gets it
        answer = partial(_answer, future, None, err)
    with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody awaits the future
        future.get_loop().call_soon_threadsafe(answer)


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # it was cancelled
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """A callback that holds the method's owner only weakly. The owner holds the client, so a strong reference
    would keep both alive."""
    known = weakref.WeakMethod(method)

    def call(*args: Any) -> None:
        if (found := known()) is not None:
            found(*args)

    return call


def patiently(f: Callable[..., Any], *args: Any) -> Any:
    """Call ``f(*args)`` in a client's thread; repeat the call while a partition's leader or a group's
    coordinator is being found."""
    from confluent_kafka import KafkaError as E
    from confluent_kafka import KafkaException

    passing = (
        E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS,
        E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_FOR_PARTITION,
    )  # fmt: skip
    for pause_s in _PAUSES_S:
        try:
            return f(*args)
        except KafkaException as err:
            if err.args[0].code() not in passing:
                raise
            time.sleep(pause_s)
    return f(*args)


class Refused:
    """A client's ``error_cb`` that remembers why brokers refuse the client: wrong credentials or certificates. The
    request itself then only times out, and its error does not say why."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError as E

        if error.code() in (E._AUTHENTICATION, E._SSL, E.SASL_AUTHENTICATION_FAILED):
            self.error = error


def list_topics(client: Any, refused: Refused, *args: Any) -> Any:
    """``client.list_topics(*args)``, in the client's thread; if the brokers refuse the client, the
    KafkaException comes at once and says why."""
    from confluent_kafka import KafkaError as E
    from confluent_kafka import KafkaException

    until = time.monotonic() + ANSWER_S
    while True:
        try:
            return client.list_topics(*args, timeout=_LOOK_S)
        except KafkaException as err:
            client.poll(0)  # calls ``refused``
            if refused.error is not None:
                raise KafkaException(refused.error) from None
            if err.args[0].code() not in (E._TRANSPORT, E._TIMED_OUT) or time.monotonic() > until:
                raise


def failure(error: KafkaError, what: str, where: str) -> PenstockError:
    """The error for a client's error: of the table's declaration or of rights, or one that another attempt
    may mend."""
    from confluent_kafka import KafkaError as E

    code, text = error.code(), error.str()
    remedies = {
        E.UNKNOWN_TOPIC_OR_PART: "make the topic, or correct its name",
        E._UNKNOWN_TOPIC: "make the topic, or correct its name",
        E._UNKNOWN_PARTITION: "correct the partition, or add partitions to the topic",
        E.TOPIC_AUTHORIZATION_FAILED: "allow the user to read, write or describe the topic",
        E.GROUP_AUTHORIZATION_FAILED: "allow the user to use the consumer group, or set another 'properties.group.id'",
        E.CLUSTER_AUTHORIZATION_FAILED: "allow the user idempotent writes",
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow the user the transactional id, or set another 'sink.transactional-id-prefix'",
        E.SASL_AUTHENTICATION_FAILED: "correct the user and password",
        E._AUTHENTICATION: "correct the user and password, 'properties.security.protocol' and 'properties.sasl.mechanism'",
        E._SSL: "check 'properties.ssl.ca.location' and the broker's certificate",
        E.INVALID_TRANSACTION_TIMEOUT: "set 'properties.transaction.timeout.ms' to no more than the broker's transaction.max.timeout.ms",
        E.MSG_SIZE_TOO_LARGE: "raise 'properties.message.max.bytes' and the topic's max.message.bytes",
        E.RECORD_LIST_TOO_LARGE: "raise the topic's max.message.bytes",
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the broker must be 0.11 or newer",
    }  # fmt: skip
    if code in remedies:
        return ConnectorError(what, got=f"{error.name()}: {text}", where=where, remedy=remedies[code])
    return BrokerError(
        what,
        got=f"{error.name()}: {text}",
        where=where,
        remedy="check that the brokers run and are reached under their advertised listeners",
    )


class Trouble:
    """What a client said of brokers that do not answer. The client repeats it at least twice a minute while it lasts."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._said = ""
        self._at_s = 0.0

    def said(self, error: KafkaError) -> None:
        """The client reports an error that may pass."""
        self._said, self._at_s = error.str(), time.monotonic()

    def over(self) -> None:
        """A broker answered."""
        self._said = ""

    @property
    def reason(self) -> str | None:
        """The brokers and the error; None: they answer."""
        fresh = self._said and time.monotonic() - self._at_s < _TROUBLE_S
        return f"{self._where}: {self._said}" if fresh else None


#: How long an error counts if the client does not repeat it, in seconds.
_TROUBLE_S = 65.0
