"""The conformance kit of lookup sources: rows of an external table by key."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import Connector, LookupSource, TableInfo
from penstock.connectors.lookup import CACHES, lookup_settings
from penstock.connectors.registry import register
from penstock.errors import ExternalError
from penstock.jobgraph.specs import LookupJoinSpec
from penstock.testing.conformance.base import leaves_nothing, same_rows
from penstock.testing.conformance.connector import ConnectorConformance
from penstock.testing.conformance.data_thread import DataThread, measured_in_passes
from penstock.testing.conformance.driving import Driver
from penstock.testing.graphs import GraphBuilder
from penstock.testing.harness import run_graph
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from penstock.connectors.base import SourceContext

Row = tuple[Any, ...]

#: Keys of one call of ``lookup``: more than one statement of most databases accepts.
_MANY = 20_000


class LookupConformance(ConnectorConformance):
    """Checks a connector's lookups: keys with one row, several and none, NULL, many keys at once, types,
    projections, concurrent lookups, failures, resources left open, and whole joins with each cache.

    The author gives ``connector``, ``schema``, ``keys``, ``options`` (a table that holds ``rows``), ``rows``
    (some keys twice; where a key column may be NULL, a row with NULL in it) and ``absent`` (keys that the table lacks). Optional:
    ``outage`` and ``many_absent``.
    """

    #: The table's columns.
    schema: t.Schema
    #: The key columns of the lookup, as indices into ``schema``.
    keys: Sequence[int] = (0,)

    def connector(self) -> Connector:
        """A new object of the connector."""
        raise NotImplementedError

    def options(self) -> Mapping[str, str]:
        """The options of a table with these rows, ``connector`` among them. Called once a check."""
        raise NotImplementedError

    def rows(self) -> Sequence[Row]:
        """The rows of that table, as tuples of Python values."""
        raise NotImplementedError

    def absent(self) -> Sequence[Row]:
        """Some values of the key columns that no row has."""
        raise NotImplementedError

    def many_absent(self) -> Sequence[Row]:
        """Thousands of values of the key columns that no row has; by default of BIGINT, INT and STRING keys."""
        made: list[Callable[[int], Any]] = []
        for column in self.keys:
            match self.schema.types[column]:
                case t.VarCharType() | t.CharType():
                    made.append(lambda i: f"absent {i}")
                case t.BigIntType() | t.IntType():
                    made.append(lambda i: 1_000_000_000 + i)
                case _:
                    return ()
        return [tuple(value(i) for value in made) for i in range(_MANY)]

    def outage(self, options: Mapping[str, str]) -> AbstractAsyncContextManager[Any] | None:
        """A context manager: in its block the table of these options cannot be reached. None if the author
        cannot arrange this."""
        return None

    # -- answers ------------------------------------------------------------------------------

    def test_the_caches_are_known_and_served(self) -> None:
        connector = self.connector()
        caches = connector.lookup_caches
        assert caches, "lookup_caches is empty: the connector says that it cannot be looked up"
        assert set(caches) <= set(CACHES), f"lookup_caches has {sorted(set(caches) - set(CACHES))}"
        connector.validate(self._table(), role="source")
        assert lookup_settings(connector, {}, where="the kit").cache == caches[0]

    def test_all_keys_at_once_give_their_rows(self) -> None:
        """A key with several rows gives all of them; a row with NULL in its key is never given."""

        async def check(source: LookupSource, _: Any) -> None:
            same_rows(await self._asked(source, self._present()), self._known(), "all keys at once")

        self._asking(check)

    def test_each_key_alone_gives_its_rows(self) -> None:
        async def check(source: LookupSource, _: Any) -> None:
            for key in self._present():
                want = [row for row in self._known() if self._key(row) == key]
                same_rows(await self._asked(source, [key]), want, f"key {key} alone")

        self._asking(check)

    def test_a_missing_key_gives_no_row(self) -> None:
        async def check(source: LookupSource, _: Any) -> None:
            absent = list(self.absent())
            assert absent, "absent() gives no keys"
            same_rows(await self._asked(source, absent), [], "keys that are not in the table")
            mixed = [*absent, *self._present()]
            same_rows(await self._asked(source, mixed), self._known(), "present and missing keys together")

        self._asking(check)

    def test_many_keys_at_once(self) -> None:
        async def check(source: LookupSource, _: Any) -> None:
            many = list(self.many_absent())
            half = len(many) // 2
            asked = [*many[:half], *self._present(), *many[half:]]
            same_rows(await self._asked(source, asked), self._known(), f"{len(asked)} keys at once")

        self._asking(check)

    def test_questions_side_by_side_do_not_mix(self) -> None:
        async def check(source: LookupSource, _: Any) -> None:
            keys = self._present()
            answers = await asyncio.gather(*(self._asked(source, [key]) for key in keys))
            for key, got in zip(keys, answers, strict=True):
                want = [row for row in self._known() if self._key(row) == key]
                same_rows(got, want, f"key {key} beside {len(keys) - 1} others")

        self._asking(check)

    def test_the_answer_has_the_columns_and_types_that_were_asked_for(self) -> None:
        """The requested columns always include the key columns, at any position."""
        width = len(self.schema)
        others = [i for i in range(width) if i not in self.keys]
        for projection in ([*self.keys], [*others, *self.keys], list(reversed(range(width)))):

            async def check(source: LookupSource, _: Any, wanted: list[int] = projection) -> None:
                batch = await self._batch(source, self._present())
                types = [self.schema.types[i] for i in wanted]
                assert batch.schema.types == types, f"types {batch.schema.types}, not {types}"
                want = [tuple(row[i] for i in wanted) for row in self._known()]
                same_rows(batch.to_pylist(), want, f"columns {[self.schema.names[i] for i in wanted]}")

            self._asking(check, projection=projection)

    def test_the_whole_table_is_loaded(self) -> None:
        """``lookup.cache`` = FULL loads the table, and loads it again at each reload."""
        if "FULL" not in self.connector().lookup_caches:
            return

        async def check(source: LookupSource, _: Any) -> None:
            for _again in range(2):
                batch = await source.load()
                assert batch.schema.types == self.schema.types, f"types {batch.schema.types}"
                same_rows(batch.to_pylist(), list(self.rows()), "the whole table")

        self._open(check)

    # -- failures ------------------------------------------------------------------------------

    def test_a_failure_that_passes_may_be_asked_again(self) -> None:
        """The failure is an ``ExternalError``, after which the join retries; the same source object must then
        answer."""

        async def check(source: LookupSource, options: Mapping[str, str]) -> None:
            outage = self.outage(options)
            if outage is None:
                return
            async with outage:
                with contextlib.suppress(ExternalError):
                    await self._any(source)
                    raise AssertionError("a table that cannot be reached raises nothing")
            await self._any(source)

        self._open(check)

    def test_closing_leaves_nothing_behind(self) -> None:
        async def check(driver: Driver) -> None:
            async def cycle() -> None:
                source = await self._opened(driver)
                await self._any(source)
                await source.close()

            await leaves_nothing(cycle, "a lookup source that is closed")

        self._drive(check)

    def test_it_runs_as_it_declares(self) -> None:
        measured_in_passes(self._measured_pass)

    def _measured_pass(self) -> dict[str, str]:
        wrong: dict[str, str] = {}

        async def check(driver: Driver) -> None:
            driver.helper.calls = 0
            async with DataThread(driver.helper) as thread:
                source = await self._opened(driver)
                await self._any(source)
                await source.close()
            wrong.update(thread.faults())
            if driver.connector.runs == "loop" and driver.helper.calls:
                wrong["helper"] = "runs = 'loop', but it calls SourceContext.run: declare 'native'"

        self._drive(check)
        return wrong

    # -- joins ----------------------------------------------------------------------------------

    def test_a_join_with_each_cache(self) -> None:
        """Runs a LEFT join of rows with present, missing and NULL keys, each twice."""
        for cache in self.connector().lookup_caches:
            self._joined(cache, failures=0)

    def test_a_join_whose_first_questions_fail(self) -> None:
        """The join retries up to ``lookup.max-retries`` times and gives the same rows."""
        self._joined(self.connector().lookup_caches[0], failures=1)

    def _joined(self, cache: str, *, failures: int) -> None:
        null = (None,) * len(self.keys)
        asked = [*self._present(), *self.absent(), null] * 2
        left = t.Schema(
            (
                t.Field("n", t.BigIntType()),
                *(
                    t.Field(f"k{i}", self.schema.types[k].with_nullable(True))
                    for i, k in enumerate(self.keys)
                ),
            )
        )
        rows = [(number, *key) for number, key in enumerate(asked)]
        right = [t.Field(f.name, f.type.with_nullable(True)) for f in self.schema.fields]
        output = t.Schema((*left.fields, *right))
        name = f"conformance-{type(self).__name__}"
        register(_Failing(name, self.connector(), failures))
        spec = LookupJoinSpec(
            kind="left",
            connector=name,
            options={**self.options(), "lookup.cache": cache},
            schema=self.schema,
            left_keys=tuple(range(1, len(left))),
            right_keys=tuple(self.keys),
            projection=tuple(range(len(self.schema))),
        )
        b = GraphBuilder()
        source = b.values(Batch.of(left, rows))
        b.chain(source, spec, output)
        b.collect(source)
        want: list[Row] = []
        for row in rows:
            found = [x for x in self._known() if self._key(x) == row[1:]]
            want += [(*row, *x) for x in found] or [(*row, *(None,) * len(self.schema))]
        same_rows(list(run_graph(b.build()).rows), want, f"a LEFT join with lookup.cache = {cache}")

    # -- parts ----------------------------------------------------------------------------------

    def _key(self, row: Row) -> Row:
        return tuple(row[k] for k in self.keys)

    def _known(self) -> list[Row]:
        """The rows that a lookup can find: those without NULL in the key."""
        return [row for row in self.rows() if None not in self._key(row)]

    def _present(self) -> list[Row]:
        keys = list(dict.fromkeys(map(self._key, self._known())))
        most = max(Counter(map(self._key, self._known())).values(), default=0)
        assert most > 1, "rows() has no key twice: the kit needs one"
        return keys

    def _asks(self) -> bool:
        """Whether the connector looks rows up by key; otherwise it only loads the whole table."""
        return bool({"NONE", "PARTIAL"} & set(self.connector().lookup_caches))

    async def _any(self, source: LookupSource) -> None:
        if self._asks():
            await self._asked(source, self._present())
        else:
            await source.load()

    async def _asked(self, source: LookupSource, keys: Sequence[Row]) -> list[Row]:
        return (await self._batch(source, keys)).to_pylist()

    async def _batch(self, source: LookupSource, keys: Sequence[Row]) -> Batch:
        schema = t.Schema(tuple(self.schema.fields[k] for k in self.keys))
        return await source.lookup(Batch.of(schema, list(keys)))

    async def _opened(self, driver: Driver, projection: Sequence[int] | None = None) -> LookupSource:
        source = driver.connector.lookup(driver.table)
        await source.open(driver.context(projection=projection))
        return source

    def _asking(
        self, check: Callable[..., Awaitable[None]], *, projection: Sequence[int] | None = None
    ) -> None:
        if self._asks():
            self._open(check, projection=projection)

    def _open(
        self, check: Callable[..., Awaitable[None]], *, projection: Sequence[int] | None = None
    ) -> None:
        """Run ``check(source, options)`` with an open source."""

        async def opened(driver: Driver) -> None:
            source = await self._opened(driver, projection)
            try:
                await check(source, driver.table.options)
            finally:
                await source.close()

        self._drive(opened)


class _Failing(Connector):
    """Wraps a connector so that its first lookups fail as if the table could not be reached."""

    def __init__(self, name: str, inner: Connector, failures: int) -> None:
        self.name = name
        self.lookup_caches = inner.lookup_caches
        self._inner = Driver(inner, TableInfo(t.Schema(()), {})).connector
        self._failures = failures

    def lookup(self, table: TableInfo) -> LookupSource:
        return _FailingSource(self._inner.lookup(table), self._failures)


class _FailingSource(LookupSource):
    def __init__(self, inner: LookupSource, failures: int) -> None:
        self._inner = inner
        self._failures = failures

    async def open(self, ctx: SourceContext) -> None:
        await self._inner.open(ctx)

    async def lookup(self, keys: Batch) -> Batch:
        self._fail()
        return await self._inner.lookup(keys)

    async def load(self) -> Batch:
        self._fail()
        return await self._inner.load()

    async def close(self) -> None:
        await self._inner.close()

    def _fail(self) -> None:
        if self._failures:
            self._failures -= 1
            raise ExternalError("the kit lets this question fail")
