"""Every set of bad items in wholes of up to eight, and how many calls one bad item takes."""

from itertools import combinations

import pytest

from penstock.halving import by_halves, first_failing


class BadItemError(Exception):
    pass


def halves(part):
    middle = len(part) // 2
    return None if len(part) == 1 else (part[:middle], part[middle:])


def attempt_without(bad, calls):
    def attempt(part):
        calls.append(part)
        if found := bad & set(part):
            raise BadItemError(min(found))
        return part

    return attempt


@pytest.mark.parametrize("n", range(1, 9))
def test_the_bad_items_are_left_out_and_the_others_come_in_their_order(n):
    for count in range(n + 1):
        for bad in map(set, combinations(range(n), count)):
            refused = []
            parts = by_halves(
                list(range(n)),
                attempt_without(bad, []),
                lambda part, err: refused.append((part, str(err))),  # noqa: B023
                halves=halves,
            )
            assert [i for part in parts for i in part] == [i for i in range(n) if i not in bad]
            assert refused == [([i], str(i)) for i in sorted(bad)]


def test_a_whole_without_bad_items_is_taken_once():
    calls = []
    assert list(by_halves([1, 2, 3], attempt_without(set(), calls), pytest.fail, halves=halves)) == [
        [1, 2, 3]
    ]
    assert calls == [[1, 2, 3]]


def test_one_bad_item_takes_two_calls_a_halving():
    calls = []
    list(by_halves(list(range(1024)), attempt_without({700}, calls), lambda *_: None, halves=halves))
    assert len(calls) == 1 + 2 * 10


def test_a_part_is_tried_only_when_it_is_asked_for():
    calls = []
    parts = by_halves([1, 2], attempt_without({2}, calls), lambda *_: None, halves=halves)
    assert next(parts) == [1]
    assert calls == [[1, 2], [1]]


def test_other_errors_and_those_of_refused_end_it():
    def fails(part):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(by_halves([1, 2], fails, pytest.fail, halves=halves, errors=BadItemError))

    def refuses(part, err):
        raise KeyError(str(err))

    with pytest.raises(KeyError):
        list(by_halves([1, 2], attempt_without({1}, []), refuses, halves=halves))


@pytest.mark.parametrize("n", range(1, 9))
def test_the_first_item_that_fails_by_itself(n):
    for bad in ({i, j} for i in range(n) for j in range(n)):
        part, error = first_failing(
            list(range(n)), attempt_without(bad, []), BadItemError("all"), halves=halves
        )
        assert part == [min(bad)]
        assert str(error) == ("all" if n == 1 else str(min(bad)))


def test_a_whole_that_fails_only_together_is_named_as_a_whole():
    def attempt(part):
        if sum(part) > 9:
            raise BadItemError(f"{sum(part)} is too much")

    part, error = first_failing([1, 2, 4, 5], attempt, BadItemError("all"), halves=halves)
    assert (part, str(error)) == ([1, 2, 4, 5], "all")
    part, error = first_failing([1, 1, 5, 6], attempt, BadItemError("all"), halves=halves)
    assert (part, str(error)) == ([5, 6], "11 is too much")
