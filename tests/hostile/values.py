"""Random values of msgspec types, plausible ones and hostile ones, from one seeded source: the same seed makes the
same messages. ``mutated`` damages what is encoded."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
from msgspec import inspect

#: Ids and texts that break what does not check them: subjects, paths, keys of the store, logs, SQL.
HOSTILE_TEXTS = (
    "", "*", ">", "a.b", "a b", "\x00", "\r\nPUB x 1\r\ny", "../../etc/passwd", "/etc/passwd", "²", "٣", "a" * 5_000,
    "null", "NaN", "-1", "'; DROP TABLE t; --", "%n%s", "\ud7ff\uffff", "file:///etc", "s3://nowhere/x", "{}", "💥" * 300,
)  # fmt: skip
HOSTILE_INTS = (-1, 0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
HOSTILE_FLOATS = (0.0, -1.0, 1e308, -1e-308, 0.5)
#: Deeper than what JSON decoders follow.
DEEP = 20_000
#: The deepest value that is made of a type that contains itself.
MAX_DEPTH = 6
MAX_ITEMS = 4


class Values:
    """Makes values. ``known``: a field's name → values that mean something in the cluster, such as ids of jobs; a
    field that is named so has one of them three times out of four, and always if it is one of ``always``."""

    def __init__(
        self,
        rng: random.Random,
        known: dict[str, Sequence[Any]] | None = None,
        always: frozenset[str] = frozenset(),
    ) -> None:
        self.rng = rng
        self.known = dict(known or {})
        self._always = always

    def message(self, union: Any) -> Any:
        """A message of one of the union's classes."""
        return self.of(inspect.type_info(self.rng.choice(get_args(union) or (union,))))

    def text(self) -> str:
        """Any text."""
        if self.rng.random() < 0.5:
            return self.rng.choice(HOSTILE_TEXTS)
        return "".join(self.rng.choices("abcdef0123456789-_", k=self.rng.choice((1, 8, 32))))

    def json_value(self, depth: int = 0) -> Any:
        """Anything that JSON can hold."""
        kind = self.rng.randrange(5 if depth > 3 else 7)
        if kind == 5:
            return [self.json_value(depth + 1) for _ in range(self.rng.randrange(MAX_ITEMS))]
        if kind == 6:
            return {self.text(): self.json_value(depth + 1) for _ in range(self.rng.randrange(MAX_ITEMS))}
        return (None, self.rng.random() < 0.5, self.integer(), self.rng.choice(HOSTILE_FLOATS), self.text())[
            kind
        ]

    def integer(self) -> int:
        """A whole number: small, or at an edge."""
        return self.rng.randrange(8) if self.rng.random() < 0.5 else self.rng.choice(HOSTILE_INTS)

    def of(self, kind: Any, name: str = "", depth: int = 0) -> Any:
        """A value of a type as ``msgspec.inspect`` describes it. ``name``: of the field."""
        if self.known.get(name) and (name in self._always or self.rng.random() < 0.75):
            return self.rng.choice(self.known[name])
        match kind:
            case inspect.StructType(cls=cls, fields=fields):
                return self._struct(cls, fields, depth)
            case inspect.UnionType(types=types):
                fit = [t for t in types if isinstance(t, inspect.NoneType)] if depth > MAX_DEPTH else []
                return self.of(self.rng.choice(fit or types), name, depth + 1)
            case inspect.DictType(key_type=key, value_type=value):
                count = 0 if depth > MAX_DEPTH else self.rng.randrange(MAX_ITEMS)
                return {self.of(key, "", depth + 1): self.of(value, "", depth + 1) for _ in range(count)}
            case inspect.VarTupleType(item_type=item):
                return tuple(self._items(item, depth))
            case inspect.TupleType(item_types=items):
                return tuple(self.of(item, "", depth + 1) for item in items)
            case inspect.ListType(item_type=item):
                return self._items(item, depth)
            case inspect.SetType(item_type=item) | inspect.FrozenSetType(item_type=item):
                return frozenset(self._items(item, depth))
            case inspect.EnumType(cls=cls):
                return self.rng.choice(list(cls))
            case inspect.LiteralType(values=values):
                return self.rng.choice(values)
            case inspect.IntType():
                return self.integer()
            case inspect.FloatType():
                return self.rng.choice(HOSTILE_FLOATS)
            case inspect.BoolType():
                return self.rng.random() < 0.5
            case inspect.BytesType():
                return self.rng.randbytes(self.rng.choice((0, 1, 64, 4_096)))
            case inspect.NoneType():
                return None
            case inspect.StrType():
                return self.text()
            case inspect.AnyType():
                return self.json_value()
        raise TypeError(f"no values of {kind!r} are made yet")

    def _struct(self, cls: type, fields: Sequence[Any], depth: int) -> Any:
        made = {}
        for field in fields:
            if not field.required and (depth > MAX_DEPTH or self.rng.random() < 0.25):
                continue
            made[field.name] = self.of(field.type, field.name, depth + 1)
        return cls(**made)

    def _items(self, item: Any, depth: int) -> list[Any]:
        count = 0 if depth > MAX_DEPTH else self.rng.randrange(MAX_ITEMS)
        return [self.of(item, "", depth + 1) for _ in range(count)]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Encoded JSON that is damaged in one of many ways."""
    match rng.randrange(10):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            at = rng.randrange(len(data) + 1)
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        case 2:
            return b'{"type":' + b"[" * DEEP + b"]" * DEEP + b"}"
        case 3:
            return b'{"a":' * DEEP + b"1" + b"}" * DEEP
        case 4:
            return _one_changed(rng, data, "9" * rng.choice((20, 400, 5_000)))
        case 5:
            return _one_changed(
                rng, data, rng.choice(("null", "[]", "{}", '""', "1e999", '"\\ud800"', "-0.0", "true"))
            )
        case 6:
            return _one_changed(rng, data, '"' + "x" * 300_000 + '"')
        case 7:
            return rng.randbytes(rng.choice((0, 1, 3, 100)))
        case 8:
            return data.replace(b'"type":"', b'"type":"un', 1)
        case _:
            return data + data


def _one_changed(rng: random.Random, data: bytes, text: str) -> bytes:
    """The document with one value replaced by ``text``."""
    try:
        tree = json.loads(data)
    except ValueError:  # a text that is no document
        return text.encode()
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                walk(value)

    if isinstance(tree, dict | list):
        walk(tree)
    if not places:
        return text.encode()
    node, key = rng.choice(places)
    node[key] = "\x01here\x01"
    return json.dumps(tree).encode().replace(b'"\\u0001here\\u0001"', text.encode(), 1)


def encoded(message: Any) -> bytes:
    """As the bus has it."""
    return msgspec.json.encode(message)
