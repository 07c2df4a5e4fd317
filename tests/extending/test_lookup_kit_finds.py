"""The kit of lookups finds what it is for: a wrong lookup fails the check that names the fault."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from penstock.connectors.api import LOOKUP_OPTIONS, DeclaredConnector, LookupSource, OptionSet
from penstock.errors import BrokerError
from penstock.testing import (
    LookupConformance,
    run_kit,
)
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.extending.finding import SCHEMA, found

PEOPLE = [(1, "a"), (2, "b"), (2, "c"), (None, "nobody")]


class _Lookup(LookupSource):
    """Rows of a list, answered in the order of the keys."""

    async def lookup(self, keys):
        return self.batch([row for key in self.asked(keys) for row in PEOPLE if row[0] == key])

    async def load(self):
        return self.batch(PEOPLE)

    def asked(self, keys):
        return keys.columns[0].to_pylist()

    def batch(self, rows):
        return Batch.of(SCHEMA, rows).select(list(self.ctx.projection))


class _OneRowAKey(_Lookup):
    async def lookup(self, keys):
        return self.batch(list({row[0]: row for row in PEOPLE if row[0] in self.asked(keys)}.values()))


class _NullForTheMissing(_Lookup):
    async def lookup(self, keys):
        rows = [row for key in self.asked(keys) for row in PEOPLE if row[0] == key]
        known = {row[0] for row in rows}
        return self.batch(rows + [(key, None) for key in self.asked(keys) if key not in known])


class _NullMatches(_Lookup):
    async def lookup(self, keys):
        return self.batch([row for row in PEOPLE if row[0] is None or row[0] in self.asked(keys)])


class _AThousand(_Lookup):
    def asked(self, keys):
        return super().asked(keys)[:1000]


class _AllColumns(_Lookup):
    def batch(self, rows):
        return Batch.of(SCHEMA, rows)


class _OtherTypes(_Lookup):
    def batch(self, rows):
        schema = Schema.of(("id", t.IntType()), ("name", t.VarCharType()))
        return Batch.of(schema, rows).select(list(self.ctx.projection))


class _OneQuestion(_Lookup):
    """Keeps its question where the next one overwrites it."""

    async def lookup(self, keys):
        self.keys = keys
        await asyncio.sleep(0)
        return await super().lookup(self.keys)


class _LoadsOnce(_Lookup):
    loaded = False

    async def load(self):
        rows, self.loaded = ([] if self.loaded else PEOPLE), True
        return self.batch(rows)


class _LoadsWithoutNull(_Lookup):
    async def load(self):
        return self.batch(PEOPLE[:3])


class _PlainError(_Lookup):
    async def lookup(self, keys):
        if _Reachable.out:
            raise ConnectionError("refused")
        return await super().lookup(keys)


class _SwallowsErrors(_Lookup):
    async def lookup(self, keys):
        return self.batch([]) if _Reachable.out else await super().lookup(keys)


class _StaysBroken(_Lookup):
    broken = False

    async def lookup(self, keys):
        self.broken |= _Reachable.out
        if self.broken:
            raise BrokerError("refused")
        return await super().lookup(keys)


class _LeavesATask(_Lookup):
    async def open(self, ctx):
        await super().open(ctx)
        asyncio.get_running_loop().create_task(asyncio.sleep(3600))


class _Sleeps(_Lookup):
    async def lookup(self, keys):
        time.sleep(0.001)  # noqa: ASYNC251 (the fault)
        return await super().lookup(keys)


class _Reachable:
    out = False


def lookup_kit(source):
    class Connector(DeclaredConnector):
        name = "people"
        lookup_caches = ("NONE", "PARTIAL", "FULL")

        def __init__(self):
            super().__init__(OptionSet("connector 'people'", LOOKUP_OPTIONS))

        def lookup(self, table):
            return source()

    class Kit(LookupConformance):
        schema = SCHEMA
        patience_s = 20.0

        def connector(self):
            return Connector()

        def options(self):
            return {"connector": "people"}

        def rows(self):
            return PEOPLE

        def absent(self):
            return [(7,), (8,)]

        @contextlib.asynccontextmanager
        async def outage(self, options):
            _Reachable.out = True
            try:
                yield
            finally:
                _Reachable.out = False

    return Kit


class _Right(_Lookup):
    async def lookup(self, keys):
        if _Reachable.out:
            raise BrokerError("refused")
        return await super().lookup(keys)


def test_the_right_lookup_passes():
    assert [str(f) for f in run_kit(lookup_kit(_Right))] == []


@pytest.mark.parametrize(
    ("source", "check", "says"),
    [
        (_OneRowAKey, "all_keys_at_once", "1 rows are missing"),
        (_NullForTheMissing, "missing_key", "too many"),
        (_NullMatches, "all_keys_at_once", "nobody"),
        (_AThousand, "many_keys", "rows are missing"),
        (_AllColumns, "columns_and_types", "types"),
        (_OtherTypes, "columns_and_types", "types"),
        (_OneQuestion, "side_by_side", "beside"),
        (_LoadsOnce, "whole_table", "4 rows are missing"),
        (_LoadsWithoutNull, "whole_table", "1 rows are missing"),
        (_PlainError, "asked_again", "refused"),
        (_SwallowsErrors, "asked_again", "raises nothing"),
        (_StaysBroken, "asked_again", "refused"),
        (_LeavesATask, "leaves_nothing", "asyncio task"),
        (_Sleeps, "runs_as_it_declares", "time.sleep"),
        (_OneRowAKey, "join_with_each_cache", "lookup.cache = NONE"),
        (_LoadsOnce, "whole_table", "missing"),
    ],
)
def test_a_wrong_lookup_is_found(source, check, says):
    assert says in found(lookup_kit(source), check)
