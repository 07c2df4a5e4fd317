"""Each kit finds what it is for: wrong formats, stores, providers … fail the check that names the fault."""

from __future__ import annotations

import asyncio

import pytest

from penstock.leases import MemoryLeases
from penstock.providers import WorkerPhase, WorkerProfile
from penstock.state.hashmap import HashMapStateBackend
from penstock.store import MemoryStore
from penstock.testing import (
    AggregateConformance,
    FormatConformance,
    LeaseStoreConformance,
    ObjectStoreConformance,
    ProviderConformance,
    ScalarConformance,
    StateBackendConformance,
    TableConformance,
    run_kit,
)
from penstock.types import logical as t
from tests.extending.finding import found

# -- formats ---------------------------------------------------------------------------------------


def format_kit(pairs, decoder=None, encoder=None, files=None):
    class Format(pairs.PairsFormat):
        def __init__(self):
            super().__init__()
            self.files = files(self) if files else self.files

        def decoder(self, ctx):
            return (decoder or pairs.PairsDecoder)(ctx)

        def encoder(self, schema, options):
            return (encoder or pairs.PairsEncoder)(schema)

    class Kit(FormatConformance):
        def format(self):
            return Format()

        def broken(self, message):
            return b"no pair"

    return Kit


def test_the_right_format_passes(pairs):
    assert run_kit(format_kit(pairs)) == []


def test_a_value_that_changes_is_found(pairs):
    class Encoder(pairs.PairsEncoder):
        def _text(self, value):
            return super()._text(round(value, 3) if isinstance(value, float) else value)

    assert "DOUBLE as messages" in found(format_kit(pairs, encoder=Encoder), "every_type")


def test_null_that_becomes_text_is_found(pairs):
    class Decoder(pairs.PairsDecoder):
        def _row(self, line):
            row = super()._row(line)
            return [
                "" if v is None and f.type == t.VarCharType() else v
                for v, f in zip(row, self._schema.fields, strict=True)
            ]

    assert "STRING" in found(format_kit(pairs, decoder=Decoder), "null_comes_back")


def test_a_bad_record_that_is_swallowed_is_found(pairs):
    class Decoder(pairs.PairsDecoder):
        def __init__(self, ctx):
            super().__init__(ctx)
            ctx.bad_record = lambda *_: None

    assert "0 bad records were reported" in found(format_kit(pairs, decoder=Decoder), "bad_record")


def test_a_bad_record_without_its_place_is_found(pairs):
    class Decoder(pairs.PairsDecoder):
        def decode(self, messages, where):
            return super().decode(messages, lambda i: "somewhere")

    assert "the place is given as 'somewhere'" in found(format_kit(pairs, decoder=Decoder), "bad_record")


def test_parts_that_overlap_are_found(pairs):
    from penstock.formats.lines import LineFiles

    class Files(LineFiles):
        def __init__(self, format):
            super().__init__(format, cut=True)

        def parts(self, path, size, open, part_bytes):
            parts = super().parts(path, size, open, part_bytes)
            return [{**part, "end": min(size, part["end"] + 40)} for part in parts]

    assert "cut at" in found(format_kit(pairs, files=Files), "parts_of_a_file")


# -- stores ----------------------------------------------------------------------------------------


def store_kit(store):
    class Kit(ObjectStoreConformance):
        async def open(self):
            return store()

    return Kit


class _Overwriting(MemoryStore):
    async def create(self, key, data):
        await self.put(key, data)
        return True


class _Racing(MemoryStore):
    async def create(self, key, data):
        if key in self.objects:
            return False
        await asyncio.sleep(0)
        await self.put(key, data)
        return True


class _Halves(MemoryStore):
    async def put(self, key, data):
        await super().put(key, data[: len(data) // 2])
        await asyncio.sleep(0)
        await super().put(key, data)


class _Unsorted(MemoryStore):
    async def list(self, prefix):
        return list(reversed(await super().list(prefix)))


class _OnePage(MemoryStore):
    async def list(self, prefix):
        return (await super().list(prefix))[:1000]


class _Empty(MemoryStore):
    async def get(self, key):
        return self.objects.get(key, b"")


@pytest.mark.parametrize(
    ("store", "check"),
    [
        (_Overwriting, "second_create"),
        (_Racing, "many_creates"),
        (_Halves, "half_an_object"),
        (_Unsorted, "in_order"),
        (_OnePage, "listed_whole"),
        (_Empty, "absent"),
    ],
)
def test_a_wrong_object_store_is_found(store, check):
    assert found(store_kit(store), check)


class _Anybody(MemoryLeases):
    async def renew(self, name, owner, ttl_ms):
        return await super().renew(name, self._owner(name) or owner, ttl_ms)


class _ForEver(MemoryLeases):
    async def acquire(self, name, owner, ttl_ms):
        return await super().acquire(name, owner, 3_600_000)


class _TwoSteps(MemoryLeases):
    async def acquire(self, name, owner, ttl_ms):
        free = self._owner(name) in (None, owner)
        await asyncio.sleep(0)
        if free:
            self._held[name] = (owner, self._now_ms() + ttl_ms)
        return free


class _ReleasesAll(MemoryLeases):
    async def release(self, name, owner):
        self._held.pop(name, None)


@pytest.mark.parametrize(
    ("leases", "check"),
    [
        (_Anybody, "only_the_owner_renews"),
        (_ForEver, "expires"),
        (_TwoSteps, "many_at_once"),
        (_ReleasesAll, "only_the_owner_releases"),
    ],
)
def test_a_wrong_lease_store_is_found(leases, check):
    class Kit(LeaseStoreConformance):
        def setup_method(self):
            super().setup_method()
            self.now_ms = 0.0

        async def open(self):
            return leases(lambda: self.now_ms)

        async def pass_ms(self, ms):
            self.now_ms += ms

    assert found(Kit, check)


# -- state -----------------------------------------------------------------------------------------


class _NoUndo(HashMapStateBackend):
    def state(self, desc, **options):
        journal, self.journal = self.journal, None
        try:
            return super().state(desc, **options)
        finally:
            self.journal = journal


class _NoExpiry(HashMapStateBackend):
    def state(self, desc, **options):
        desc.ttl = None
        return super().state(desc, **options)


class _LosesOne(HashMapStateBackend):
    def _put_all(self, state, rows):
        super()._put_all(state, list(rows)[1:])


@pytest.mark.parametrize(
    ("backend", "check"),
    [(_NoUndo, "undone"), (_NoExpiry, "expire"), (_LosesOne, "random_work")],
)
def test_a_wrong_state_backend_is_found(backend, check):
    class Kit(StateBackendConformance):
        def make(self, space, *, now_ms, undo):
            return backend(space, now_ms=now_ms, uid="op", undo=undo)

    assert found(Kit, check)


# -- providers -------------------------------------------------------------------------------------


class _World:
    """(worker id, serial number) → running."""

    def __init__(self):
        self.workers = {}
        self.serial = 0

    def start(self, worker_id):
        self.serial += 1
        self.workers[worker_id, self.serial] = True


class _Provider:
    def __init__(self, world):
        self.world = world

    def here(self):
        return {worker_id for worker_id, _ in self.world.workers}

    async def ensure(self, wanted):
        for worker_id in wanted.keys() - self.here():
            self.world.start(worker_id)
        self.world.workers = {k: v for k, v in self.world.workers.items() if k[0] in wanted}

    async def list(self):
        return {k[0]: WorkerPhase.RUNNING if v else WorkerPhase.ENDED for k, v in self.world.workers.items()}

    async def close(self):
        return None


class _StartsTwice(_Provider):
    async def ensure(self, wanted):
        missing = wanted.keys() - self.here()
        await asyncio.sleep(0)
        for worker_id in missing:
            self.world.start(worker_id)
        await super().ensure(wanted)


class _OnlyItsOwn(_Provider):
    """Knows what this object has started: the next leader starts everything again."""

    def __init__(self, world):
        super().__init__(world)
        self.mine = set()

    def here(self):
        return self.mine

    async def ensure(self, wanted):
        await super().ensure(wanted)
        self.mine = set(wanted)


class _Restarts(_Provider):
    def here(self):
        return {worker_id for (worker_id, _), running in self.world.workers.items() if running}


@pytest.mark.parametrize(
    ("provider", "check"),
    [
        (_StartsTwice, "two_leaders"),
        (_OnlyItsOwn, "outlive"),
        (_Restarts, "ended_is_said"),
    ],
)
def test_a_wrong_provider_is_found(provider, check):
    class Kit(ProviderConformance):
        profile = WorkerProfile()

        def setup_method(self):
            super().setup_method()
            self.world = _World()

        async def open(self, cluster_id="kit"):
            return provider(self.world)

        async def instances(self, worker_id, cluster_id="kit"):
            return sum(v for k, v in self.world.workers.items() if k[0] == worker_id)

        async def end_worker(self, worker_id):
            for key in self.world.workers:
                if key[0] == worker_id:
                    self.world.workers[key] = False

    assert found(Kit, check)


# -- functions -------------------------------------------------------------------------------------


def test_a_scalar_function_that_remembers_is_found():
    from penstock.api import ScalarFunction, udf

    @udf(result_type="BIGINT")
    class Counts(ScalarFunction):
        seen = 0

        def eval(self, value):
            self.seen += 1
            return value if self.seen < 3 else -1

    class Kit(ScalarConformance):
        function = Counts
        arguments = ("BIGINT",)
        cases = (((1,), 1), ((2,), 2), ((None,), None))

    assert found(Kit, "cases_hold")


def test_an_aggregate_with_a_wrong_merge_or_retract_is_found():
    from penstock.api import udaf

    @udaf(result_type="BIGINT")
    class Wrong:
        def create_accumulator(self):
            return [0]

        def accumulate(self, acc, value):
            acc[0] += value

        def retract(self, acc, value):
            acc[0] -= value + 1

        def merge(self, acc, others):
            acc[0] = max(acc[0], *(o[0] for o in others))

        def get_value(self, acc):
            return acc[0]

    class Kit(AggregateConformance):
        function = Wrong
        arguments = ("BIGINT",)
        cases = (([(1,), (2,)], 3),)

    assert found(Kit, "merged")
    assert found(Kit, "retracted")
    assert run_kit(Kit, only="cases_hold") == []


def test_a_table_function_with_other_rows_is_found():
    from penstock.api import udtf

    @udtf(result_types="ROW<x BIGINT>")
    def twice(value):
        yield from (value, value)

    class Kit(TableConformance):
        function = staticmethod(twice)
        arguments = ("BIGINT",)
        cases = (((1,), [(1,)]),)

    assert found(Kit, "cases_hold")
