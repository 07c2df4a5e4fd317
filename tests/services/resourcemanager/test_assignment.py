"""Who gets what, as a table."""

import pytest

from penstock_services.resourcemanager.assignment import STARVATION_MS, Grant, Waiting, assign


def waiting(job, missing, needed=None, since=0, together=False):
    return Waiting(job, missing, missing if needed is None else needed, since, together)


CASES = {
    "nothing free": ([waiting("a", 1)], {}, 0, 0, []),
    "one": ([waiting("a", 1)], {"t1": [3]}, 1, 0, [("a", "t1", 3)]),
    "spread": (
        [waiting("a", 4)],
        {"t1": [0, 1, 2], "t2": [0, 1, 2]},
        6,
        0,
        [("a", "t1", 0), ("a", "t2", 0), ("a", "t1", 1), ("a", "t2", 1)],
    ),
    "most free first": ([waiting("a", 2)], {"t1": [0], "t2": [0, 1, 2]}, 4, 0, [("a", "t2", 0), ("a", "t2", 1)]),
    "together: of the fullest that has them all": (
        [waiting("a", 2, together=True)],
        {"t1": [0, 1, 2], "t2": [4, 7], "t3": [0]},
        6,
        0,
        [("a", "t2", 4), ("a", "t2", 7)],
    ),
    "together, but nobody has them all: spread": (
        [waiting("a", 3, together=True)],
        {"t1": [0, 1], "t2": [0]},
        3,
        0,
        [("a", "t1", 0), ("a", "t2", 0), ("a", "t1", 1)],
    ),
    "all or nothing": ([waiting("a", 3)], {"t1": [0, 1]}, 2, 0, []),
    "arrival order": ([waiting("a", 2), waiting("b", 1)], {"t1": [0, 1]}, 2, 0, [("a", "t1", 0), ("a", "t1", 1)]),
    "a small job passes one that does not fit": (
        [waiting("a", 3), waiting("b", 1)],
        {"t1": [0, 1]},
        4,
        0,
        [("b", "t1", 0)],
    ),
    "not for ever": ([waiting("a", 3), waiting("b", 1)], {"t1": [0, 1]}, 4, STARVATION_MS, []),
    "one that can never fit holds nobody up": (
        [waiting("a", 9), waiting("b", 1)],
        {"t1": [0, 1]},
        4,
        STARVATION_MS,
        [("b", "t1", 0)],
    ),
    "what a restart misses counts, not all it needs": (
        [waiting("a", 1, needed=4)],
        {"t1": [1]},
        4,
        0,
        [("a", "t1", 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_assign(name):
    jobs, free, total, now_ms, expected = CASES[name]
    assert assign(jobs, free, {}, total, now_ms) == [Grant(*grant) for grant in expected]


def test_the_manager_with_fewest_of_the_job_comes_first_among_equals():
    free = {"t1": [0], "t2": [0]}
    held = {("t1", "a"): 2, ("t2", "a"): 1}
    assert assign([waiting("a", 1, 4)], free, held, 5, 0) == [Grant("a", "t2", 0)]


def test_it_leaves_its_arguments_alone():
    free = {"t1": [0, 1]}
    assign([waiting("a", 2)], free, {}, 2, 0)
    assert free == {"t1": [0, 1]}
