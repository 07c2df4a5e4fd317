import numpy as np
import pytest

from penstock.columnar.multimap import MultiMap


def some(*numbers):
    return np.array(numbers, np.int64)


def test_removing_all_of_many_runs():
    """Sorting what waited merges runs; those of nothing but removed entries go away."""
    found = MultiMap()
    for entry in range(4):
        found.add(some(0), some(entry))
        if entry < 3:
            found.probe(some(0))
    found.remove(some(0, 1, 2, 3))
    assert len(found) == 0
    assert [a.tolist() for a in found.probe(some(0))] == [[], []]


@pytest.mark.parametrize("seed", range(30))
def test_it_finds_what_a_dictionary_finds(seed):
    rng = np.random.default_rng(seed)
    found, want, number = MultiMap(), {}, 0
    for _ in range(80):
        match rng.integers(3):
            case 0:
                n = int(rng.choice([1, 2, 40]))
                slots = rng.integers(0, 6, n)
                entries = np.arange(number, number + n)
                number += n
                found.add(slots, entries)
                want.update(zip(entries.tolist(), slots.tolist(), strict=True))
            case 1:
                share = rng.choice([0.1, 0.9, 1.0])
                gone = [e for e in want if rng.random() < share]
                found.remove(some(*gone))
                for e in gone:
                    del want[e]
            case 2:
                rows, entries = found.probe(np.arange(6))
                got = sorted(zip(rows.tolist(), entries.tolist(), strict=True))
                assert got == sorted((slot, e) for e, slot in want.items())
        assert len(found) == len(want)
