"""Messages found by their place: the places of a batch are made once, however many of its messages are bad."""

from __future__ import annotations

from penstock.connectors.placed import PlacedMessages


def test_each_place_of_a_batch_is_made_once() -> None:
    made: list[int] = []

    def where(message: int) -> str:
        made.append(message)
        return f"offset {message}"

    messages: PlacedMessages[int] = PlacedMessages(where)
    messages.are(range(1000))
    assert made == []
    assert [messages.at(f"offset {i}") for i in range(1000)] == list(range(1000))
    assert messages.at("offset 1000") is None
    assert len(made) == 1000


def test_another_batch_has_its_own_places() -> None:
    messages: PlacedMessages[str] = PlacedMessages(lambda message: message)
    messages.are(["a"])
    assert messages.at("a") == "a"
    messages.are(["b"])
    assert (messages.at("a"), messages.at("b")) == (None, "b")
