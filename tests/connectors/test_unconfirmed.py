"""``Unconfirmed``: what of a queue may be acknowledged, and what was read before."""

from __future__ import annotations

from penstock.connectors.unconfirmed import ACKNOWLEDGED_KEPT_MS, Unconfirmed


def tags(entries):
    return [entry.tag for entry in entries]


def test_what_a_checkpoint_holds_is_acknowledged_once_and_in_order():
    state = Unconfirmed(None, 1000, 0)
    assert [state.arrive(tag, None) for tag in (1, 2, 3)] == [True] * 3
    state.poll([None, None])
    cut = state.position()
    state.poll([None])
    assert cut == {"messages": 2}
    assert tags(state.ripe(cut)) == [1, 2]
    assert state.ripe(cut) == []
    assert tags(state.ripe(state.position())) == [3]


def test_what_comes_again_after_a_restore_is_known_and_only_acknowledged():
    first = Unconfirmed(None, 1000, 0)
    for tag, id in ((1, "a"), (2, "b"), (3, "c")):
        first.arrive(tag, id)
    first.poll(["a", "b"])
    second = Unconfirmed(first.position(), 1000, 0)
    second.begin(0)
    assert [second.arrive(tag, id) for tag, id in ((1, "a"), (2, "b"), (3, "c"))] == [False, False, True]
    # The checkpoint that was restored holds both; the next one acknowledges them.
    assert tags(second.ripe({"messages": 2})) == [1, 2]


def test_a_connection_that_is_lost_brings_back_what_waited_and_what_was_read():
    state = Unconfirmed(None, 1000, 0)
    state.arrive(1, "a")
    state.arrive(2, "b")
    state.poll(["a"])
    state.begin(5)
    assert state.arrive(1, "a") is False
    assert state.arrive(2, "b") is True
    state.poll(["b"])
    assert tags(state.ripe(state.position())) == [1, 2]


def test_two_messages_of_one_id_are_one():
    state = Unconfirmed(None, 1000, 0)
    assert state.arrive(1, "a") is True
    assert state.arrive(2, "a") is False
    state.poll(["a"])
    assert tags(state.ripe(state.position())) == [1, 2]


def test_a_delivery_that_is_no_row_is_acknowledged_with_what_came_before_it():
    state = Unconfirmed(None, 1000, 0)
    state.arrive(1, None)
    state.skip(2)
    assert state.ripe({"messages": 0}) == []
    assert tags(state.ripe({"messages": 1})) == [1, 2]


def test_ids_are_forgotten_when_nothing_can_bring_them_back():
    state = Unconfirmed({"messages": 1, "ids": ["old"]}, 1000, 0)
    state.arrive(1, "a")
    state.poll(["a"])
    state.forget(999_999)
    assert state.position()["ids"] == ["a"], (
        "the id of the restored state is forgotten, that of what waits is not"
    )
    entries = state.ripe(state.position())
    state.acknowledged(entries, 10)
    state.forget(9 + ACKNOWLEDGED_KEPT_MS)
    assert state.position()["ids"] == ["a"]
    state.forget(10 + ACKNOWLEDGED_KEPT_MS)
    assert state.position() == {"messages": 2}


def test_an_id_whose_acknowledgement_may_be_lost_is_kept_for_the_retention():
    state = Unconfirmed(None, 50_000, 0)
    state.arrive(1, "a")
    state.poll(["a"])
    state.acknowledged(state.ripe(state.position()), 0)
    state.begin(ACKNOWLEDGED_KEPT_MS - 1)
    state.forget(ACKNOWLEDGED_KEPT_MS + 49_998)
    assert state.arrive(1, "a") is False
    assert tags(state.ripe(state.position())) == [1]
