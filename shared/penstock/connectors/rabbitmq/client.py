"""Connects to RabbitMQ; turns its client's errors into Penstock's."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from penstock.connectors.rabbitmq.settings import OWNER
from penstock.errors import BrokerError, ConnectorError, ExternalError, PenstockError
from penstock.redaction import hide, without_credentials

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: Seconds that a connection may take, and a check while a statement is planned.
CONNECT_S, CHECK_S = 10.0, 3.0


def where_of(options: Mapping[str, Any]) -> str:
    """The connector and the server, without credentials."""
    return f"{OWNER}, {without_credentials(options['url']).partition('?')[0]}"


def full_url(options: Mapping[str, Any]) -> str:
    """The URL with user and password. Raises ConnectorError."""
    parts = urlsplit(options["url"])
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise ConnectorError(
            "option 'url' is no address of RabbitMQ",
            expected="amqp://host:5672/vhost or amqps://…",
            got=without_credentials(options["url"]),
            where=OWNER,
        )
    user = options["username"] or unquote(parts.username or "guest")
    password = options["password"] or unquote(parts.password or "guest")
    if password != "guest":
        hide(password)
    host = parts.netloc.rpartition("@")[2]
    found = parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{host}")
    return found._replace(path=parts.path or "/").geturl()


async def connected(options: Mapping[str, Any], name: str) -> Any:
    """A connection. BrokerError if the server does not answer; ConnectorError if it refuses the user."""
    import aiormq

    where = where_of(options)
    try:
        async with asyncio.timeout(CONNECT_S):
            return await aiormq.connect(full_url(options), client_properties={"connection_name": name})
    except errors() as err:
        raise failure(err, where) from err


def errors() -> tuple[type[Exception], ...]:
    """The classes of errors that the client raises."""
    import aiormq

    return (aiormq.AMQPError, OSError, TimeoutError)


def failure(err: BaseException, where: str) -> PenstockError:
    """The error for a client's error: ExternalError if waiting may mend it, else an error of the table or of the user's
    rights."""
    import aiormq.exceptions as e

    said = str(err) or type(err).__name__
    if isinstance(err, PenstockError):
        return err
    remedy = ""
    if isinstance(err, e.ProbableAuthenticationError | e.AuthenticationError) and "ACCESS_REFUSED" in said:
        remedy = "correct user and password ('url', 'username', 'password')"
    elif isinstance(err, e.ChannelNotFoundEntity) and "inaccessible" not in said and "timeout" not in said:
        remedy = "make it, correct its name, or set 'queue.declare' = 'true'"
    elif isinstance(err, e.ChannelAccessRefused) or "NOT_ALLOWED" in said or "access to vhost" in said:
        remedy = "correct the vhost in 'url', and allow the user what the table does"
    elif isinstance(err, e.ChannelPreconditionFailed) and "timed out" not in said:
        remedy = "the queue was made in another way: remove 'queue.declare'"
    elif isinstance(err, e.ConnectionNotImplemented):
        remedy = "the server lacks what the table needs: take a classic or quorum queue"
    if remedy:
        return ConnectorError("RabbitMQ refuses", got=said, where=where, remedy=remedy)
    return BrokerError(
        "RabbitMQ does not answer", got=said, where=where,
        remedy="start it, or correct 'url'; Penstock tries again",
    )  # fmt: skip


async def queue_length(channel: Any, options: Mapping[str, Any], queue: str) -> int:
    """The number of messages that nobody holds. The queue is made if the table says so."""
    if options["queue.declare"]:
        found = await channel.queue_declare(queue, durable=True)
    else:
        found = await channel.queue_declare(queue, passive=True)
    return int(found.message_count or 0)


def check_server(options: Mapping[str, Any], look: Callable[[Any], Awaitable[Any]]) -> None:
    """ConnectorError if the server answers and refuses the user, or what ``look`` asks of a channel. A server that does not
    answer is no error: the job waits for it."""
    full_url(options)
    found: list[PenstockError] = []

    async def main() -> None:
        async with asyncio.timeout(CHECK_S):
            connection = await connected(options, "penstock-check")
            try:
                await look(await connection.channel(publisher_confirms=False))
            finally:
                await connection.close()

    def call() -> None:
        try:
            asyncio.run(main())
        except PenstockError as err:
            found.append(err)
        except errors() as err:
            found.append(failure(err, where_of(options)))

    # The planner may be called from an event loop, which cannot run another one.
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if found and "OpenOk" in (found[0].got or ""):
        # The client does not tell why. While a job runs this is waited for: a server that starts refuses vhosts, too.
        raise ConnectorError(
            "RabbitMQ refuses the vhost",
            expected="a vhost that is there and that the user may enter",
            got=repr(unquote(urlsplit(options["url"]).path[1:] or "/")),
            where=where_of(options),
            remedy="correct the path of 'url': amqp://host:5672/ is the vhost '/'",
        )
    if found and not isinstance(found[0], ExternalError):
        raise found[0]
