"""A client of MQTT 5, and Penstock's errors for its errors."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.connectors.mqtt.settings import OWNER
from penstock.errors import BrokerError, ConnectorError, ExternalError, PenstockError
from penstock.redaction import hide, without_credentials

#: Reason codes that waiting does not mend: wrong credentials, no right, banned, bad client id, topic or filter.
_REFUSALS = {132, 133, 134, 135, 138, 140, 143, 144, 155, 158, 161}
#: Seconds that connecting and an answer may take, and a check while a statement is planned.
ANSWER_S, CHECK_S = 10.0, 3.0
_KEEPALIVE_S = 30
ERRORS = (aiomqtt.MqttError, OSError, TimeoutError, ValueError)


def where_of(options: Mapping[str, Any]) -> str:
    """The connector and the broker, without credentials."""
    return f"{OWNER}, {without_credentials(options['url'])}"


class Link(aiomqtt.Client):
    """A connection. It says whether the broker knew the session, gives messages to ``take`` as they come, and fails
    messages that the broker refuses."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        client_id: str | None = None,
        take: Callable[[Any], None] | None = None,
    ) -> None:
        parts = urlsplit(options["url"])
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
            raise ConnectorError(
                "option 'url' is no address of an MQTT broker", expected="mqtt://host:1883 or mqtts://…",
                got=without_credentials(options["url"]), where=OWNER,
            )  # fmt: skip
        password = options["password"] or (unquote(parts.password) if parts.password else None)
        if password:
            hide(password)
        secure = parts.scheme == "mqtts"
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if client_id is not None:
            properties.SessionExpiryInterval = max(1, options["session-expiry"] // 1000)
            properties.ReceiveMaximum = options["receive-maximum"]
        super().__init__(
            parts.hostname,
            parts.port or (8883 if secure else 1883),
            username=options["username"] or (unquote(parts.username) if parts.username else None),
            password=password,
            identifier=client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=client_id is None,
            keepalive=_KEEPALIVE_S,
            properties=properties,
            tls_context=tls(options) if secure else None,
            timeout=ANSWER_S,
            max_inflight_messages=65_535,
        )
        self.session_present = False
        #: What the broker said when it refused a message.
        self.refusal = ""
        self._take = take
        #: Messages without acknowledgement that the broker takes.
        self.most = 65_535
        self.pending_calls_threshold = 1 << 20
        # Acknowledged by ``acknowledge`` alone.
        self._client.manual_ack_set(True)

    def _on_connect(
        self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None
    ) -> None:
        self.session_present = flags.session_present
        self.most = getattr(properties, "ReceiveMaximum", None) or self.most
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        if self._take is not None:
            self._take(message)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:
        if reason_code.is_failure:
            # The client itself takes it for written.
            self.refusal = f"{reason_code} ({reason_code.value})"
        super()._on_publish(client, userdata, mid, reason_code, properties)

    def acknowledge(self, mid: int, qos: int) -> None:
        """Acknowledges a message."""
        self._client.ack(mid, qos)

    @property
    def gone(self) -> asyncio.Future[None]:
        """Done when the connection has ended."""
        return self._disconnected


def tls(options: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS settings. Raises ConnectorError for files that cannot be read."""
    try:
        context = ssl.create_default_context(cafile=options["ssl.ca"])
        if options["ssl.certificate"]:
            context.load_cert_chain(options["ssl.certificate"], options["ssl.key"])
    except (OSError, ssl.SSLError) as err:
        raise ConnectorError(
            "a file of TLS cannot be read", expected="PEM files in 'ssl.ca', 'ssl.certificate', 'ssl.key'",
            got=str(err), where=OWNER,
        ) from err  # fmt: skip
    return context


def failure(err: BaseException, where: str) -> PenstockError:
    """The error for a client's error: ExternalError if waiting may mend it."""
    if isinstance(err, PenstockError):
        return err
    said = str(err) or type(err).__name__
    code = getattr(getattr(err, "rc", None), "value", None)
    if code in _REFUSALS:
        return ConnectorError(
            "the broker refuses", got=said, where=where,
            remedy="correct 'username' and 'password', and allow the user the topics",
        )  # fmt: skip
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return ConnectorError(
            "the broker's certificate cannot be checked", got=said, where=where,
            remedy="name its authority in 'ssl.ca', and the host that the certificate is for in 'url'",
        )  # fmt: skip
    return BrokerError(
        "the broker does not answer", got=said, where=where,
        remedy="start it, or correct 'url'; Penstock tries again",
    )  # fmt: skip


def check_server(options: Mapping[str, Any]) -> None:
    """ConnectorError if the broker answers and refuses the user. One that does not answer is no error: the job waits."""
    found: list[PenstockError] = []

    async def main() -> None:
        async with asyncio.timeout(CHECK_S), Link(options):
            pass

    def call() -> None:
        try:
            asyncio.run(main())
        except PenstockError as err:
            found.append(err)
        except ERRORS as err:
            found.append(failure(err, where_of(options)))

    # The planner may be called from an event loop, which cannot run another one.
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if found and not isinstance(found[0], ExternalError):
        raise found[0]
