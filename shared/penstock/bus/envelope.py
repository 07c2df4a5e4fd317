"""Typed messages over a ``Transport``: JSON of tagged msgspec structs.

A handler that raises answers ``Failed``, which ``request`` raises again as the same
error. ``Refused`` is raised too (``FencedError`` when the sender's epoch is old), unless
the caller asks for it in ``reply_type``. A request is retried until it is answered or
its deadline passes: commands are idempotent, so that is always safe.
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
from penstock.log_events import EventLog
from penstock.messages.cluster import Failed, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Subscription, Transport

T = TypeVar("T")

#: Above this a message must carry an object key instead of its payload.
MAX_MESSAGE_BYTES = 256 * 1024

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

_log = EventLog("penstock.bus")
_encoder = msgspec.json.Encoder()


class RefusedError(InternalError):
    """The other side answered ``Refused`` for a reason other than an old epoch."""

    code, retryable = "PS-REFUSED", False


class NobodyServesError(BrokerError):
    """The broker knows nobody on that subject: the process is gone, not there yet, or
    cut off. Known at once, while a mere time-out says nothing."""


@functools.lru_cache(maxsize=256)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def encode(message: Any) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes, type_: Any, where: str | None = None) -> Any:
    """A message of ``type_`` (a struct or a union of structs). SpecError when malformed."""
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
    """Send ``message`` until it is answered; returns the reply (of ``reply_type``).

    ``timeout_s`` bounds one try, ``deadline_s`` all of them (None = for ever), with
    growing pauses of 0.05 to 1 s between. Raises BrokerError when the deadline passes,
    FencedError or RefusedError on ``Refused``, and the error of ``Failed``.
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
    await transport.publish(subject, encode(message))


def told(err: BaseException) -> PenstockError:
    """An error that a handler raised, as one of ours."""
    if isinstance(err, PenstockError):
        return err
    if isinstance(err, RecursionError):
        return nested_too_deeply("request")
    return InternalError(f"{type(err).__name__}: {err}", remedy="see the log of the answering process")


def failed(err: BaseException) -> Failed:
    """The answer for an error that a handler raised."""
    return Failed(error=told(err).to_dict())


async def serve_typed(
    transport: Transport,
    subject: str,
    request_type: Any,
    handler: Callable[[Any], Awaitable[Any]],
    *,
    queue: str | None = None,
) -> Subscription:
    """Answer requests of ``request_type`` with what ``handler(message)`` returns (a
    struct, or None for no answer). An error is answered as ``Failed``."""

    async def answer(on: str, data: bytes) -> bytes | None:
        try:
            reply = await handler(decode(data, request_type, where=on))
        except PenstockError as err:
            return encode(failed(err))
        except Exception as err:
            _log.exception("handler_failed", subject=on)
            return encode(failed(err))
        return None if reply is None else encode(reply)

    return await transport.serve(subject, answer, queue=queue)
