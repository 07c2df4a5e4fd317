"""The order of messages that are sent again, against a stream that loses some."""

import random

import pytest

from penstock.connectors.nats.encoding import OutMessage
from penstock.connectors.nats.send_window import SendWindow


def messages(n, start=0):
    return [OutMessage("s", b"%d" % i, None) for i in range(start, start + n)]


def sent(window, now=0.0):
    out = []
    while (sending := window.next(now)) is not None:
        out.append(sending)
    return out


def test_a_lost_message_is_sent_again_with_all_behind_it():
    window = SendWindow(100, 5.0)
    window.add(messages(4))
    assert [s.number for s in sent(window)] == [0, 1, 2, 3]
    for number in (0, 2, 3):  # number 1 was lost, what stands behind it is stored
        window.acknowledge(0, number)
    assert window.stored == 1
    assert not window.is_overdue(4.9)
    assert window.is_overdue(5.0)
    window.again()
    assert [s.message.data for s in sent(window, 5.0)] == [b"1", b"2", b"3"]


def test_an_acknowledgement_of_an_earlier_round_does_not_count():
    window = SendWindow(100, 5.0)
    window.add(messages(2))
    sent(window)
    window.again()
    first, second = sent(window, 5.0)
    window.acknowledge(0, 0)
    window.acknowledge(0, 1)
    assert window.stored == 0
    window.acknowledge(first.round, first.number)
    assert window.stored == 1
    window.acknowledge(second.round, second.number)
    assert window.stored == 2


def test_the_window_is_bounded_also_when_later_messages_are_stored():
    window = SendWindow(3, 5.0)
    window.add(messages(10))
    assert len(sent(window)) == 3
    window.acknowledge(0, 2)
    assert sent(window) == []
    assert window.unacknowledged == 3
    assert window.waiting == 7
    window.acknowledge(0, 0)
    assert [s.number for s in sent(window)] == [3]
    assert window.message(0) is None
    assert window.message(1) == messages(2)[1]


def test_the_pause_doubles_until_something_is_stored():
    window = SendWindow(10, 1.0)
    window.add(messages(2))
    now = 0.0
    for pause in (1.0, 2.0, 4.0, 8.0, 8.0):
        last = sent(window, now)[-1]
        assert not window.is_overdue(now + pause - 0.1)
        now += pause
        assert window.is_overdue(now)
        window.again()
    last = sent(window, now)[0]
    window.acknowledge(last.round, last.number)
    assert window.is_overdue(now + 1.0)


def test_nothing_sent_is_never_overdue_and_the_oldest_keeps_its_first_time():
    window = SendWindow(10, 1.0)
    assert window.oldest_sent_s() is None
    assert not window.is_overdue(100.0)
    window.add(messages(1))
    assert window.oldest_sent_s() is None
    sent(window, 3.0)
    window.again()
    sent(window, 9.0)
    assert window.oldest_sent_s() == 3.0


@pytest.mark.parametrize("seed", range(50))
def test_the_last_copies_of_all_messages_stand_in_order(seed):
    """Whatever is lost of messages and answers, the last copy of each message stands in order."""
    rng = random.Random(seed)
    window, stream, answers = SendWindow(rng.choice([1, 3, 20]), 1.0), [], []
    now, added, total = 0.0, 0, 60
    for step in range(100_000):
        if window.stored == total:
            break
        calm = step > 3_000  # losses end, so that the test does
        now += 0.1
        if added < total and rng.random() < 0.5:
            window.add(messages(1, added))
            added += 1
        for _ in range(rng.randrange(4)):
            if (sending := window.next(now)) is not None and (calm or rng.random() < 0.8):
                stream.append(sending.number)
                if calm or rng.random() < 0.8:
                    answers.append((now + rng.choice([0.1, 0.1, 2.5]), sending))
        for at, sending in [a for a in answers if a[0] <= now]:
            answers.remove((at, sending))
            window.acknowledge(sending.round, sending.number)
        if window.is_overdue(now):
            window.again()
    assert window.stored == total
    last = {number: place for place, number in enumerate(stream)}
    assert sorted(last) == list(range(total))
    assert [last[n] for n in range(total)] == sorted(last.values())
