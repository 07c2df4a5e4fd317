"""Typed messages over a ``Transport``: tagged msgspec structs, encoded as JSON.

When a handler raises, the requester receives ``Failed``, and ``request`` raises the same error there.
``request`` also raises on ``Refused`` (``FencedError`` if the sender's epoch is old), unless
``reply_type`` includes ``Refused``. ``request`` repeats a message until it is answered or its deadline
passes. Repeating is safe because every command is idempotent.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args

import msgspec

from penstock.errors import (
    BrokerError,
    FencedError,
    InternalError,
    PenstockError,
    SpecError,
    error_from_dict,
    nested_too_deeply,
)
from penstock.identifiers import MAX_TOKEN, checked, checked_job_id
from penstock.log_events import EventLog
from penstock.messages.cluster import Failed, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Subscription, Transport

T = TypeVar("T")

#: A larger payload is stored as an object, and the message carries the object's key instead.
MAX_MESSAGE_BYTES = 256 * 1024

#: An epoch is the number of an entry of a decision log.
MAX_EPOCH = 10**12 - 1

#: The pause after the first failed try of a request; it doubles after each further try up to the longest
#: pause.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

_log = EventLog("penstock.bus")
_encoder = msgspec.json.Encoder()


class RefusedError(InternalError):
    """The other side answered ``Refused`` for a reason other than an old epoch."""

    code, retryable = "PS-REFUSED", False


class NobodyServesError(BrokerError):
    """NATS reports that the subject has no subscriber: the serving process has ended, has not started yet, or
    is disconnected. NATS reports this at once; a time-out, by contrast, does not tell whether the process
    is alive."""


@functools.lru_cache(maxsize=256)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def encode(message: Any) -> bytes:
    """The message as UTF-8 JSON. ``message`` is a msgspec struct."""
    return _encoder.encode(message)


def decode(data: bytes, type_: Any, where: str | None = None) -> Any:
    """Decodes a message. ``type_`` is a struct or a union of structs; ``where`` names the message's origin in
    errors.

    Raises SpecError if ``data`` is malformed, of another type, or nested too deeply.
    """
    try:
        return _decoder(type_).decode(data)
    except RecursionError as err:
        raise nested_too_deeply("message", where) from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        names = ", ".join(t.__name__ for t in get_args(type_) or (type_,))
        raise SpecError(
            f"malformed message: {err}",
            expected=f"JSON of one of: {names}",
            got=repr(data[:200]),
            where=where,
        ) from err


def _reply_union(reply_type: Any) -> Any:
    return Union[(*(get_args(reply_type) or (reply_type,)), Refused, Failed)]


async def request(
    transport: Transport,
    subject: str,
    message: Any,
    reply_type: Any,
    *,
    timeout_s: float = 2.0,
    deadline_s: float | None = 10.0,
    retry: bool = True,
) -> Any:
    """Sends ``message`` until it is answered, and returns the reply, an instance of ``reply_type``.

    ``timeout_s`` limits one try and ``deadline_s`` all of them (None: no limit). Between tries there are
    pauses that grow from 0.05 s to 1 s. ``retry=False`` makes one try only. Raises BrokerError if no try
    was answered, FencedError or RefusedError on ``Refused``, SpecError on a malformed reply, and on
    ``Failed`` the handler's error.
    """
    import tenacity

    loop = asyncio.get_running_loop()
    # The loop's clock, not the wall: under the simulation it is virtual.
    until = None if deadline_s is None else loop.time() + deadline_s

    def out_of_time(state: tenacity.RetryCallState) -> bool:
        return not retry or (until is not None and loop.time() >= until)

    async def once() -> bytes:
        left = timeout_s if until is None else min(timeout_s, max(0.01, until - loop.time()))
        return await transport.request(subject, data, left)

    data = encode(message)
    reply: bytes = await tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(BrokerError),
        stop=out_of_time,
        wait=tenacity.wait_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S),
        sleep=asyncio.sleep,
        reraise=True,
    )(once)
    return _unwrap(decode(reply, _reply_union(reply_type), where=f"reply on {subject}"), reply_type, subject)


def _unwrap(reply: Any, reply_type: Any, subject: str) -> Any:
    wanted = get_args(reply_type) or (reply_type,)
    if isinstance(reply, wanted):
        return reply
    if isinstance(reply, Failed):
        raise error_from_dict(reply.error)
    cls = FencedError if reply.fenced else RefusedError
    raise cls(reply.reason, where=subject)


async def publish(transport: Transport, subject: str, message: Any) -> None:
    """Sends ``message`` to all subscribers without waiting for a reply. Raises BrokerError if not connected."""
    await transport.publish(subject, encode(message))


def told(err: BaseException) -> PenstockError:
    """``err`` itself if it is a PenstockError, else an InternalError with its type and text."""
    if isinstance(err, PenstockError):
        return err
    if isinstance(err, RecursionError):
        return nested_too_deeply("request")
    return InternalError(f"{type(err).__name__}: {err}", remedy="see the log of the answering process")


def failed(err: BaseException) -> Failed:
    """The reply that reports an error which a handler raised."""
    return Failed(error=told(err).to_dict())


def _check_head(message: Any) -> None:
    """Raises SpecError if the message names a job or a task manager that cannot exist, because such an id would reach
    subjects and keys of the store only later, where nobody hears of the error; or an epoch that cannot exist, because it
    would depose every leader for ever."""
    for part in (message, getattr(message, "command", None), getattr(message, "deploy", None)):
        if (epoch := getattr(part, "epoch", None)) is not None and not 0 <= epoch <= MAX_EPOCH:
            raise SpecError("not an epoch", expected=f"0 to {MAX_EPOCH}", got=str(epoch)[:80], where="epoch")
    if (job_id := getattr(message, "job_id", None)) is not None:
        checked_job_id(job_id)
    if (taskmanager_id := getattr(message, "taskmanager_id", None)) is not None:
        checked(taskmanager_id, "task manager id", MAX_TOKEN)


async def serve_typed(
    transport: Transport,
    subject: str,
    request_type: Any,
    handler: Callable[[Any], Awaitable[Any]],
    *,
    queue: str | None = None,
) -> Subscription:
    """Answers requests on ``subject``: each is decoded as ``request_type`` and passed to ``handler``.

    ``handler`` returns the reply (a struct) or None for no reply. If it raises, or the request is
    malformed or names a job or task manager that cannot exist, the requester receives ``Failed``. Of the members of one ``queue`` group only one receives
    each message.
    """

    async def answer(on: str, data: bytes) -> bytes | None:
        try:
            message = decode(data, request_type, where=on)
            _check_head(message)
            reply = await handler(message)
        except PenstockError as err:
            return encode(failed(err))
        except Exception as err:
            _log.exception("handler_failed", subject=on)
            return encode(failed(err))
        return None if reply is None else encode(reply)

    return await transport.serve(subject, answer, queue=queue)
