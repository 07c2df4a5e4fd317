"""Typed requests over both transports; NATS against a real server."""

import asyncio
import uuid
from typing import Union

import pytest

from penstock.bus import MemoryTransport, RefusedError, Subjects, encode, publish, request, serve_typed
from penstock.bus.nats import NatsTransport
from penstock.errors import BrokerError, FencedError, FunctionError, InternalError, SpecError
from penstock.messages.cluster import Ack, Refused
from penstock.messages.resource_manager import (
    DeclareReply,
    DeclareSlots,
    DeregisterTaskManager,
    ToResourceManager,
)

#: Against hanging only.
PATIENCE_S = 120
DECLARE = DeclareSlots(job_id="j", epoch=3, needed=4)
REPLY = DeclareReply(allocated=1, missing=3, total=1, free=0)


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.cluster)])
async def transport(request: pytest.FixtureRequest):
    made = (
        MemoryTransport()
        if request.param == "memory"
        else await NatsTransport.connect(request.getfixturevalue("nats_url"))
    )
    yield made
    await made.close()


@pytest.fixture
def subjects():
    return Subjects(uuid.uuid4().hex)


async def test_request_and_reply(transport, subjects):
    seen = []

    async def handler(message):
        seen.append(message)
        return REPLY

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    assert await request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, DeclareReply) == REPLY
    assert seen == [DECLARE]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (FunctionError("it broke", where="here", user_traceback="Traceback"), FunctionError),
        (ValueError("plain"), InternalError),
    ],
)
async def test_an_error_of_the_handler_is_raised_at_the_caller(transport, subjects, raised, expected):
    async def handler(message):
        raise raised

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    with pytest.raises(expected, match=r"it broke|ValueError: plain") as err:
        await request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack)
    assert err.value.where == getattr(raised, "where", None)


async def test_refused(transport, subjects):
    replies = [Refused(reason="old", fenced=True), Refused(reason="no"), Refused(reason="as a value")]

    async def handler(message):
        return replies.pop(0)

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    subject = subjects.to_resourcemanager(DECLARE)
    with pytest.raises(FencedError, match="old"):
        await request(transport, subject, DECLARE, Ack)
    with pytest.raises(RefusedError, match="no"):
        await request(transport, subject, DECLARE, Ack)
    assert await request(transport, subject, DECLARE, Union[Ack, Refused]) == Refused(reason="as a value")


async def test_malformed_is_answered_not_dropped(transport, subjects):
    async def handler(message):
        return Ack()

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    for data in (b"{", b'{"type":"nonsense"}', b'{"type":"declare-slots","job_id":7}', b"\xff\xfe"):
        answer = await transport.request(subjects.resourcemanager("declare-slots"), data)
        assert b'"type":"failed"' in answer
        assert b"malformed message" in answer
        assert b"DeclareSlots" in answer


@pytest.mark.parametrize(
    ("field", "bad"), [("job_id", "\x00"), ("job_id", "a.b"), ("taskmanager_id", "*"), ("taskmanager_id", "")]
)
async def test_ids_that_cannot_exist_do_not_reach_the_handler(transport, subjects, field, bad):
    """They would get into subjects and keys of the store later, where the sender hears nothing of it."""
    seen = []

    async def handler(message):
        seen.append(message)
        return REPLY

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    messages = {
        "job_id": DeclareSlots(job_id=bad, epoch=1, needed=1),
        "taskmanager_id": DeregisterTaskManager(taskmanager_id=bad),
    }
    message = messages[field]
    with pytest.raises(SpecError, match=r"not a (job|task manager) id"):
        await request(transport, subjects.to_resourcemanager(message), message, Ack)
    assert not seen


@pytest.mark.parametrize("epoch", [-1, 10**12, 2**63, 10**400])
async def test_epochs_that_cannot_exist_depose_nobody(transport, subjects, epoch):
    async def handler(message):
        return REPLY

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    data = b'{"type":"declare-slots","job_id":"j","epoch":%d,"needed":1}' % epoch
    answer = await transport.request(subjects.resourcemanager("declare-slots"), data)
    assert b'"type":"failed"' in answer
    assert b"SpecError" in answer


async def test_a_reply_of_another_type_is_an_error(transport, subjects):
    async def handler(message):
        return REPLY

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    with pytest.raises(SpecError, match="malformed"):
        await request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack)


async def test_nobody_there_until_the_deadline(transport, subjects):
    with pytest.raises(BrokerError):
        await request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack, deadline_s=0.2)


async def test_no_answer(transport, subjects):
    async def handler(message):
        await asyncio.Event().wait()

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    with pytest.raises(BrokerError, match="no answer"):
        await request(
            transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack, timeout_s=0.05, retry=False
        )


async def test_retried_until_somebody_answers(transport, subjects):
    async def handler(message):
        return Ack()

    waiting = asyncio.create_task(
        request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack, deadline_s=None)
    )
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.1)
    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    assert await waiting == Ack()


async def test_a_slow_handler_does_not_hold_up_the_others(transport, subjects):
    gate = asyncio.Event()

    async def handler(message):
        if isinstance(message, DeclareSlots):
            await gate.wait()
        else:
            gate.set()
        return Ack()

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    leaving = DeregisterTaskManager(taskmanager_id="t")
    assert await asyncio.gather(
        request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack),
        request(transport, subjects.to_resourcemanager(leaving), leaving, Ack),
    ) == [Ack(), Ack()]


async def test_order_of_one_publisher_and_queue_groups(transport, subjects):
    seen: list[str] = []
    in_group: list[str] = []
    done, group_done = asyncio.Event(), asyncio.Event()

    async def note(message):
        seen.append(message.taskmanager_id)
        if len(seen) == 100:
            done.set()

    async def note_group(message):
        in_group.append(message.taskmanager_id)
        if len(in_group) == 100:
            group_done.set()

    await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, note)
    for _ in range(2):
        await serve_typed(
            transport, subjects.resourcemanager_all, ToResourceManager, note_group, queue="group"
        )
    for i in range(100):
        await publish(transport, subjects.resourcemanager("x"), DeregisterTaskManager(taskmanager_id=str(i)))
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    assert seen == [str(i) for i in range(100)]
    await asyncio.wait_for(group_done.wait(), PATIENCE_S)
    assert sorted(in_group, key=int) == seen


async def test_unsubscribe(transport, subjects):
    async def handler(message):
        return Ack()

    sub = await serve_typed(transport, subjects.resourcemanager_all, ToResourceManager, handler)
    await sub.unsubscribe()
    with pytest.raises(BrokerError):
        await request(transport, subjects.to_resourcemanager(DECLARE), DECLARE, Ack, retry=False)


async def test_not_connected():
    with pytest.raises(BrokerError) as err:
        await NatsTransport.connect("nats://127.0.0.1:1", deadline_s=0.5)
    assert "nats://127.0.0.1:1" in str(err.value)
    assert "nats.url" in err.value.remedy


@pytest.mark.cluster
async def test_reconnects_after_the_server_was_away(own_nats):
    server = own_nats()
    changes: asyncio.Queue[bool] = asyncio.Queue()
    transport = await NatsTransport.connect(server.url, on_connection=changes.put_nowait)

    async def echo(subject, data):
        return data

    await transport.serve("echo", echo)
    server.stop()
    assert await asyncio.wait_for(changes.get(), PATIENCE_S) is False
    with pytest.raises(BrokerError, match="not connected"):
        await transport.publish("echo", b"x")
    own_nats()
    assert await asyncio.wait_for(changes.get(), PATIENCE_S) is True
    assert await transport.request("echo", b"back", PATIENCE_S) == b"back"  # subscriptions are restored
    await transport.close()


@pytest.mark.cluster
async def test_too_large_a_message_names_the_limit(nats_url):
    transport = await NatsTransport.connect(nats_url)
    with pytest.raises(BrokerError, match="larger than the server takes"):
        await transport.publish("big", encode(["x" * 2_000_000]))
    await transport.close()


async def test_errors_do_not_show_passwords():
    url = "nats://someone:secret@127.0.0.1:1,nats://token@127.0.0.1:1"
    with pytest.raises(BrokerError, match=r"nats://\*{6}@127\.0\.0\.1:1,nats://\*{6}@127") as raised:
        await NatsTransport.connect(url, deadline_s=0.3)
    assert "secret" not in str(raised.value)
    assert "token@" not in str(raised.value)
