"""The key index and the multimap against dicts: growth, freeing, reuse, NULLs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.key_packing import KeyPacking
from penstock.columnar.multimap import MultiMap
from penstock.errors import InternalError
from penstock.types import logical as t
from penstock.types.column import Column

NAN = float("nan")
SHAPES = {
    "int": ([t.IntType()], lambda x: (x,)),
    "far ints": ([t.BigIntType()], lambda x: (x if x is None or x < 2000 else x * 10**14,)),
    "two ints": ([t.BigIntType(), t.IntType()], lambda x: (None, 3) if x is None else (x, -x)),
    "three ints": (
        [t.BigIntType(False), t.IntType(False), t.BooleanType(False)],
        lambda x: (0, 0, False) if x is None else (x, x // 7 - 99, x % 2 == 0),
    ),
    "long ints": (
        [t.BigIntType(False), t.BigIntType(False)],
        lambda x: (0, 0) if x is None else (-x, x if x < 2900 else x << 40),
    ),
    "ints beside NULL": ([t.BigIntType(), t.IntType()], lambda x: _beside_null(x)),
    "lowest ints beside NULL": (
        [t.IntType(), t.IntType()],
        lambda x: (None, None) if x is None else (x - 1 - 2**31, None if x % 2 else x),
    ),
    "string": ([t.VarCharType()], lambda x: (None if x is None else "k" * (x % 5) + str(x),)),
    "mixed": (
        [t.DoubleType(), t.VarCharType()],
        lambda x: (None, None) if x is None else (x % 7 / 2, "é" + str(x)),
    ),
    "decimal": ([t.DecimalType(38, 0)], lambda x: (None if x is None else x * 10**25,)),
}


def _beside_null(x):
    if x is None:
        return (None, None)
    return [(None, x), (x, None), (x, -x)][x % 3]


@pytest.fixture(params=["at once", "by and by"], autouse=True)
def moving(request, monkeypatch):
    """How many slots a call moves to a larger table: all there are, or hardly any."""
    if request.param == "by and by":
        monkeypatch.setattr("penstock.columnar.key_index._MIGRATE", 3)
        monkeypatch.setattr("penstock.columnar.hash_table._FIRST_BITS", 3)
        monkeypatch.setattr("penstock.columnar.direct._SMALL_SPAN", 64)


@pytest.mark.parametrize("shape", SHAPES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(seed=st.integers(0, 10**6), rounds=st.integers(1, 25))
def test_slots_stay_with_their_keys(shape, seed, rounds):
    types, value = SHAPES[shape]
    random = np.random.default_rng(seed)
    index, known = KeyIndex(types), {}

    def columns(keys):
        rows = [value(k) for k in keys]
        return [Column.of(x, [r[i] for r in rows]) for i, x in enumerate(types)]

    for turn in range(rounds):
        keys = [None if k == 0 else int(k) for k in random.integers(0, 3000, random.integers(1, 500))]
        slots, new = index.upsert(columns(keys), len(keys))
        assert len(set(new.tolist())) == len(new) == len({k for k in keys if k not in known})
        for key, slot in zip(keys, slots.tolist(), strict=True):
            assert known.setdefault(key, slot) == slot
        assert len(set(known.values())) == len(known) == len(index)
        assert sorted(known.values()) == index.live_slots().tolist()
        if turn % 3 == 2:
            gone = [k for k in known if random.random() < 0.5]
            index.free(np.array([known.pop(k) for k in gone], np.int64))
            if gone:
                assert (index.lookup(columns(gone), len(gone)) == -1).all()
    held = list(known)
    got = index.keys(np.array([known[k] for k in held], np.int64))
    assert [c.to_pylist() for c in got] == [c.to_pylist() for c in columns(held)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reserved", [True, False])
@pytest.mark.parametrize("before", [0, 40])
def test_known_new_keys_are_added_without_looking(shape, reserved, before):
    types, value = SHAPES[shape]

    def columns(keys):
        rows = [value(k) for k in keys]
        return [Column.of(x, [r[i] for r in rows]) for i, x in enumerate(types)]

    index = KeyIndex(types)
    keys = [None, *range(1, 2_900)]
    there, _ = index.upsert(columns(keys[1500 : 1500 + before]), before)
    rest = [k for k in keys if k not in keys[1500 : 1500 + before]]
    random = np.random.default_rng(1)
    random.shuffle(rest)
    if reserved:
        index.reserve(len(rest))
    slots = dict(zip(keys[1500 : 1500 + before], there.tolist(), strict=True))
    for part in np.array_split(np.array(rest, object), 7):
        at = index.extend(columns(part.tolist()), len(part))
        assert at == slice(len(slots), len(slots) + len(part))
        slots |= dict(zip(part.tolist(), range(at.start, at.stop), strict=True))
    assert index.lookup(columns(keys), len(keys)).tolist() == [slots[k] for k in keys]
    found, new = index.upsert(columns([*keys, 2_950]), len(keys) + 1)
    assert found.tolist() == [*(slots[k] for k in keys), len(keys)]
    assert new.tolist() == [len(keys)]
    index.free(found[:500])
    assert (index.lookup(columns(keys[:500]), 500) == -1).all()
    with pytest.raises(InternalError, match="after slots were freed"):
        index.extend(columns([2_960]), 1)


def test_packed_keys_hold_nulls_and_refuse_what_is_as_low_as_null():
    types = [t.BigIntType(), t.IntType(), t.BooleanType()]
    rows = [
        (1, None, True),
        (None, 7, False),
        (None, None, None),
        (-(2**20) + 1, 2**20 - 1, None),
        (0, 0, False),
    ]
    packing = KeyPacking(types)
    keys, valid = packing.packed([Column.of(x, [row[i] for row in rows]) for i, x in enumerate(types)])
    assert valid is None
    assert len(set(keys.tolist())) == len(rows)
    assert list(zip(*(c.to_pylist() for c in packing.unpacked(keys, None)), strict=True)) == rows
    for low in (-(2**20), 2**20):
        assert packing.packed([Column.of(x, [low if i == 1 else None]) for i, x in enumerate(types)]) is None


def test_a_mask_without_nulls_makes_no_key_of_null():
    index = KeyIndex([t.IntType()])
    rows = Column(t.IntType(), np.array([1, 2], np.int32), np.ones(2, np.bool_))
    slots, new = index.upsert([rows], 2)
    assert len(new) == len(index) == 2
    assert index.keys(slots)[0].to_pylist() == [1, 2]


def test_one_zero_and_one_nan():
    index = KeyIndex([t.DoubleType()])
    slots, new = index.upsert([Column.of(t.DoubleType(), [0.0, -0.0, NAN, -NAN, None, None])], 6)
    assert len(new) == 3
    assert slots[0] == slots[1]
    assert slots[2] == slots[3]
    assert slots[4] == slots[5]


def test_no_key_columns_mean_one_key():
    index = KeyIndex([])
    assert index.lookup([], 2).tolist() == [-1, -1]
    assert [x.tolist() for x in index.upsert([], 3)] == [[0, 0, 0], [0]]
    assert index.lookup([], 2).tolist() == [0, 0]
    index.free(np.array([0]))
    assert len(index) == 0


def test_freeing_a_slot_twice_is_found():
    index = KeyIndex([t.BigIntType()])
    slots, _ = index.upsert([Column.of(t.BigIntType(), [5])], 1)
    index.free(slots)
    with pytest.raises(InternalError, match="freed twice"):
        index.free(slots)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_multimap_equals_a_dict_of_lists(data):
    table, known, free, high = MultiMap(), {}, [], 0
    for _ in range(data.draw(st.integers(1, 12))):
        slots = data.draw(st.lists(st.integers(0, 5), max_size=20))
        entries = []
        for slot in slots:
            if free and data.draw(st.booleans()):
                entry = free.pop()
            else:
                entry, high = high, high + 1
            entries.append(entry)
            known[entry] = slot
        table.add(np.array(slots, np.int64), np.array(entries, np.int64))
        gone = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True)) if known else []
        table.remove(np.array(gone, np.int64))
        for entry in gone:
            del known[entry]
            free.append(entry)
        probes = np.array([3, -1, 0, 9, 3])
        rows, found = table.probe(probes)
        want = [(i, e) for i, p in enumerate(probes.tolist()) for e, s in known.items() if s == p]
        assert sorted(zip(rows.tolist(), found.tolist(), strict=True)) == sorted(want)
        assert (np.bincount(rows, minlength=5) <= table.counts(probes)).all()
        assert len(table) == len(known)
