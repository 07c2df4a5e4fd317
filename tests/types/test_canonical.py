"""Which Python values are one key, and which are none."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import os
import subprocess
import sys
import typing
import uuid
from decimal import Decimal

import msgspec
import numpy as np
import pytest

from penstock.columnar.hashing import hash_column
from penstock.errors import UnsupportedError
from penstock.types.canonical import canonical, dictionary_key, equal_keys, user_key
from penstock.types.column import Column
from penstock.types.logical import RawType


@dataclasses.dataclass
class Point:
    x: typing.Any
    y: typing.Any = 0
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int


class Other(Point):
    pass


class Struct(msgspec.Struct):
    x: int


class Member(typing.NamedTuple):
    x: int
    y: int


class Color(enum.Enum):
    RED = 1
    BLUE = (2, "b")


class Number(enum.IntEnum):
    ONE = 1


class Word(str, enum.Enum):
    A = "a"


class UserId(str):
    __slots__ = ()


class Bits(enum.Flag):
    A = 1
    B = 2


class Plain:
    pass


class OwnEquality:
    def __eq__(self, other):
        return True

    __hash__ = None


@dataclasses.dataclass
class OwnInDataclass:
    x: int

    def __eq__(self, other):
        return self.x % 2 == other.x % 2

    __hash__ = None


@dataclasses.dataclass(eq=False)
class NoEquality:
    x: int


class OwnStruct(msgspec.Struct):
    x: int

    def __eq__(self, other):
        return True


class StructWithoutEquality(msgspec.Struct, eq=False):
    x: int


class Pickier(int):
    def __eq__(self, other):
        return False

    __hash__ = int.__hash__


UTC = dt.UTC
EAST = dt.timezone(dt.timedelta(hours=2))
NAN = float("nan")

SAME = [
    (1, 1),
    (0.0, -0.0),
    (NAN, float("-nan")),
    (Decimal("1.0"), Decimal("1.00")),
    (Decimal("100"), Decimal("1E2")),
    (Decimal("0"), Decimal("-0.0")),
    ((1, "a"), Member(1, "a")),
    (Number.ONE, 1),
    (Word.A, "a"),
    (UserId("a"), "a"),
    (np.int64(3), 3),
    (np.float64(0.5), 0.5),
    (dt.datetime(2024, 1, 1, 2, tzinfo=EAST), dt.datetime(2024, 1, 1, 0, tzinfo=UTC)),
    ({1, 2, 3}, frozenset([3, 2, 1])),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (Point(1, (2, "z"), "n"), Point(1, (2, "z"), "m")),
    (Frozen(1), Frozen(1)),
    (Struct(5), Struct(5)),
    (Color.BLUE, Color.BLUE),
    (Bits.A | Bits.B, Bits(3)),
    (2**80, 2**80),
]
DIFFERENT = [
    (1, 1.0),
    (1, True),
    (0, False),
    ("1", 1),
    ("a", b"a"),
    (None, 0),
    ("", None),
    ((1, 2), [1, 2]),
    ((1, 2), (1, 2, None)),
    (((1,), 2), (1, (2,))),
    (("ab", "c"), ("a", "bc")),
    (Point(1), Point(2)),
    (Point(1), Other(1)),
    (Frozen(1), Struct(1)),
    (Color.RED, 1),
    (Color.RED, Color.BLUE),
    (2**80, -(2**80)),
    (255, -1),
    (Decimal(1), 1),
    (Decimal("1E-2"), Decimal("1E2")),
    (dt.datetime(2024, 1, 1), dt.date(2024, 1, 1)),
    (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=UTC)),
    (dt.timedelta(seconds=1), dt.timedelta(seconds=-1)),
    ({1: 2}, {2: 1}),
    (uuid.UUID(int=1), uuid.UUID(int=2)),
    (dt.time(1), dt.time(1, tzinfo=UTC)),
]
REFUSED = [
    Plain(), OwnEquality(), OwnInDataclass(1), NoEquality(1), OwnStruct(1), StructWithoutEquality(1), Pickier(1),
    lambda: 1, Plain, collections.OrderedDict(a=1), np.zeros(2), object(), iter([]),
]  # fmt: skip


def hashes(*values):
    return hash_column(Column.of(RawType(), list(values))).tolist()


@pytest.mark.parametrize(("a", "b"), SAME, ids=repr)
def test_equal_keys_have_one_place_in_a_dictionary_and_one_hash(a, b):
    assert canonical(a) == canonical(b)
    assert equal_keys(a, b)
    assert dictionary_key(a) == dictionary_key(b)
    assert {dictionary_key(a): 1, dictionary_key(b): 2} == {dictionary_key(b): 2}
    assert len(set(hashes(a, b))) == 1


@pytest.mark.parametrize(("a", "b"), DIFFERENT, ids=repr)
def test_different_keys_are_kept_apart(a, b):
    assert canonical(a) != canonical(b)
    assert not equal_keys(a, b)
    assert len({dictionary_key(a), dictionary_key(b)}) == 2


@pytest.mark.parametrize("value", REFUSED, ids=lambda v: type(v).__name__)
def test_what_has_no_canonical_form_is_refused_by_name(value):
    for inside in (value, (1, value), [value], {"k": value}, Point(value)):
        with pytest.raises(UnsupportedError, match=f"{type(value).__qualname__}' cannot be a key"):
            canonical(inside)


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(UnsupportedError, match="contains itself"):
        canonical(loop)


def test_the_user_gets_the_key_as_it_was():
    for value in (Point(1), (1, Struct(2)), Number.ONE, 1.5, "a", None, [1]):
        assert user_key(dictionary_key(value)) is value
    assert user_key((dictionary_key(Frozen(1)), dictionary_key("a"))) == (Frozen(1), "a")


PROGRAM = """
import sys; sys.path.insert(0, {folder!r})
import json, test_canonical as c
values = [c.Point(1, (2, "z")), c.Struct(5), c.Color.BLUE, {{"a", "b", "c", "d"}}, {{"x": 1, "y": 2}}, c.Word.A, 2**80]
print(json.dumps([c.hashes(*values), [c.canonical(v).hex() for v in values]]))
"""


def test_two_processes_agree_whatever_pythons_own_hash_is():
    program = PROGRAM.format(folder=os.path.dirname(__file__))
    outs = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outs) == 1
    assert json.loads(outs.pop())[0]


def test_canonical_bytes_stand_still():
    """They decide key groups: another form would lose the state of every savepoint."""
    assert canonical(("a", 1, 1.5, None, True)).hex() == (
        "2805000000" "7301000000" "61" "6901000000" "01" "66000000000000f83f" "6e" "54"
    )  # fmt: skip
    assert canonical(Decimal("1.50")).hex() == "640500000031356531".replace("31356531", "3135652d31")
