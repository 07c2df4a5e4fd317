"""The simulation's JetStream answers as a real server does."""

import msgspec
import nats.errors
import pytest

from penstock.testing.simulation.jetstream import JetStream

pytestmark = pytest.mark.cluster


def row(batch, number, subject="a", **more):
    """A message of an atomic batch."""
    return (subject, {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number), **more})


COMMIT = {"Nats-Batch-Commit": "1"}
EXPECT = "Nats-Expected-Last-Subject-Sequence"

#: name → messages (subject, headers), published one after the other
SCRIPTS = {
    "plain": [("a", {}), ("b", {}), ("a", {})],
    "the same id twice": [("a", {"Nats-Msg-Id": "1"}), ("a", {"Nats-Msg-Id": "1"}), ("a", {"Nats-Msg-Id": "2"})],
    "a condition on the subject": [("a", {EXPECT: "0"}), ("a", {EXPECT: "0"}), ("b", {EXPECT: "0"}), ("a", {EXPECT: "1"})],
    "a condition on the stream": [
        ("a", {}), ("b", {"Nats-Expected-Last-Sequence": "1"}), ("b", {"Nats-Expected-Last-Sequence": "1"}),
    ],
    "a condition on the last id": [
        ("a", {"Nats-Msg-Id": "x"}),
        ("b", {"Nats-Expected-Last-Msg-Id": "x", "Nats-Msg-Id": "y"}),
        ("b", {"Nats-Expected-Last-Msg-Id": "x"}),
    ],
    "a batch": [row("n", 1), row("n", 2), row("n", 3, "m", **{EXPECT: "0"}, **COMMIT), ("m", {EXPECT: "3"})],
    "a batch whose condition fails": [("m", {}), row("n", 1), row("n", 2, "m", **{EXPECT: "0"}, **COMMIT), ("a", {})],
    "a batch sent twice": [
        row("n", 1), row("n", 2, "m", **{EXPECT: "0"}, **COMMIT),
        row("o", 1), row("o", 2, "m", **{EXPECT: "0"}, **COMMIT), ("a", {}),
    ],
    "a batch with a gap": [row("n", 1), row("n", 3, "m", **COMMIT), row("n", 4, "m", **COMMIT), ("a", {})],
    "the end of a batch that never began": [row("n", 2, "m", **COMMIT), ("a", {})],
    "two batches at once": [
        row("n", 1), row("o", 1, "b"), row("n", 2, "m", **{EXPECT: "0"}, **COMMIT),
        row("o", 2, "m", **{EXPECT: "0"}, **COMMIT), row("p", 1, "m", **{EXPECT: "2"}, **COMMIT),
    ],
    "a batch of one": [row("n", 1, "m", **{EXPECT: "0"}, **COMMIT), row("o", 1, "m", **{EXPECT: "0"}, **COMMIT)],
}  # fmt: skip


def shown(answer):
    """What a client decides by."""
    if answer is None:
        return None
    error = answer.get("error") or {}
    return {
        **{k: answer[k] for k in ("seq", "duplicate", "count") if k in answer},
        "err_code": error.get("err_code"),
    }


def of_the_model(stream, script):
    clock = iter(range(1, 10_000))
    model = JetStream(lambda: next(clock))
    model.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "allow_atomic": True})
    answers = [shown(model.publish(f"{stream}.{subject}", headers, b"x")) for subject, headers in script]
    return answers, model.api(f"STREAM.INFO.{stream}", {})["state"]["last_seq"]


async def of_the_server(client, stream, script):
    config = {"name": stream, "subjects": [f"{stream}.>"], "allow_atomic": True, "storage": "memory"}
    await client.request(f"$JS.API.STREAM.CREATE.{stream}", msgspec.json.encode(config), timeout=60)
    answers = []
    for subject, headers in script:
        subject = f"{stream}.{subject}"
        if "Nats-Batch-Id" in headers and "Nats-Batch-Commit" not in headers:
            await client.publish(subject, b"x", headers=headers)
            answers.append(None)
            continue
        try:
            reply = await client.request(subject, b"x", headers=headers or None, timeout=60)
        except nats.errors.TimeoutError:
            answers.append("no answer")
            continue
        answers.append(shown(msgspec.json.decode(reply.data)))
    info = await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=60)
    state = msgspec.json.decode(info.data)["state"]
    await client.request(f"$JS.API.STREAM.DELETE.{stream}", timeout=60)
    return answers, state["last_seq"]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_model_answers_as_a_server_does(shared_nats, name):
    stream = "M" + "".join(c for c in name if c.isalnum())
    client = await shared_nats.client()
    try:
        assert of_the_model(stream, SCRIPTS[name]) == await of_the_server(client, stream, SCRIPTS[name])
    finally:
        await client.close()
