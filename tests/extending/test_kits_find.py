"""Each kit finds what it is for: wrong connectors, formats, stores … fail the check that names the fault."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import threading
import time
import uuid
from pathlib import Path

import pytest

from penstock.connectors.api import LOOKUP_OPTIONS, DeclaredConnector, LookupSource, OptionSet
from penstock.errors import BrokerError
from penstock.leases import MemoryLeases
from penstock.providers import WorkerPhase, WorkerProfile
from penstock.state.hashmap import HashMapStateBackend
from penstock.store import MemoryStore
from penstock.testing import (
    AggregateConformance,
    FormatConformance,
    LeaseStoreConformance,
    LookupConformance,
    ObjectStoreConformance,
    ProviderConformance,
    ScalarConformance,
    SinkConformance,
    SourceConformance,
    StateBackendConformance,
    TableConformance,
    run_kit,
)
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


@pytest.fixture
def journal(acme):
    return importlib.import_module("acme.journal")


@pytest.fixture
def pairs(acme):
    return importlib.import_module("acme.pairs")


def found(kit, check):
    """The kit fails in ``check``, with the text that it gives."""
    failures = run_kit(kit, only=check)
    assert failures, f"{check} finds nothing"
    return str(failures[0].error)


# -- sources ---------------------------------------------------------------------------------------


def source_kit(journal, reader, runs="native"):
    class Connector(journal.JournalConnector):
        def reader(self, table):
            return reader()

    Connector.runs = runs

    class Kit(SourceConformance):
        schema = SCHEMA

        def connector(self):
            return Connector()

        def options(self):
            for n in range(3):
                lines = [json.dumps({"id": n * 10 + i, "name": "x"}) for i in range(10)]
                (self.folder / f"{n}.log").write_text("\n".join(lines) + "\n")
            return {"connector": "acme-journal", "path": str(self.folder), "format": "json"}

        def expected(self):
            return [(i, "x") for i in range(30)]

    return Kit


def test_the_right_source_passes(journal):
    assert run_kit(source_kit(journal, journal.JournalReader)) == []
    assert run_kit(source_kit(journal, journal.JournalReader, "loop")) == []


def test_a_position_that_lags_is_found(journal):
    class Reader(journal.JournalReader):
        def snapshot(self):
            first = dict.fromkeys(self._places, 0)
            return [
                journal.Split(p.split.id, p.split.payload, first[p.split.id]) for p in self._places.values()
            ]

    said = found(source_kit(journal, Reader), "restore_at_every_row")
    assert "restored behind row 1" in said


def test_a_position_kept_outside_the_split_is_found(journal):
    class Reader(journal.JournalReader):
        def snapshot(self):
            return super().snapshot()[:1]

    assert "the snapshot has splits" in found(source_kit(journal, Reader), "names_every_split")


def test_rows_lost_at_the_end_are_found(journal):
    class Reader(journal.JournalReader):
        def _lines(self, place):
            return super()._lines(place)[:-1]

    assert "rows are missing" in found(source_kit(journal, Reader), "every_row_comes_once")


def test_too_many_rows_at_once_are_found(journal):
    class Reader(journal.JournalReader):
        def _lines(self, place):
            with open(place.split.payload["path"], "rb") as file:
                file.seek(place.position)
                return list(file)

    assert "batch_rows is 3" in found(source_kit(journal, Reader), "at_most_batch_rows")


def test_a_wait_that_sleeps_over_rows_is_found(journal):
    class Reader(journal.JournalReader):
        async def wait(self):
            self._added.clear()
            await self._added.wait()

    kit = source_kit(journal, Reader)
    kit.patience_s = 2.0
    assert "something hangs" in found(kit, "every_row_comes_once")


def test_a_split_that_is_idle_too_early_is_found(journal):
    class Reader(journal.JournalReader):
        def caught_up(self, split_id):
            return True

    assert "was caught up behind row" in found(source_kit(journal, Reader), "no_split_is_caught_up")


def test_rows_that_ignore_the_projection_are_found(journal):
    class Reader(journal.JournalReader):
        async def open(self, ctx):
            ctx.projection = range(len(ctx.schema))
            await super().open(ctx)

    assert found(source_kit(journal, Reader), "projected_columns")


def test_a_thread_and_a_file_left_open_are_found(journal):
    class Reader(journal.JournalReader):
        async def open(self, ctx):
            await super().open(ctx)
            self.__class__.kept.append(Path(__file__).open("rb"))  # noqa: ASYNC230, SIM115
            thread = threading.Thread(target=stop.wait, name="left over", daemon=True)
            thread.start()

    stop = threading.Event()
    Reader.kept = []
    said = found(source_kit(journal, Reader), "closing_in_the_middle")
    stop.set()
    for file in Reader.kept:
        file.close()
    assert "thread 'left over'" in said
    assert "open files" in said


def test_a_poll_that_sleeps_is_found(journal):
    class Reader(journal.JournalReader):
        def poll(self):
            time.sleep(0.001)
            return super().poll()

    assert "kept waiting by ['time.sleep']" in found(source_kit(journal, Reader), "runs_as_it_declares")


def test_a_poll_that_computes_for_long_is_found(journal):
    class Reader(journal.JournalReader):
        def poll(self):
            sum(range(2_000_000))
            return super().poll()

    assert "of CPU time at a stretch" in found(source_kit(journal, Reader), "runs_as_it_declares")


def test_python_that_runs_for_long_in_the_helper_thread_is_found(journal):
    class Reader(journal.JournalReader):
        async def open(self, ctx):
            await super().open(ctx)
            await ctx.run(self.work)

        def work(self):
            n = 0
            while n < 40_000:
                n += 1

    assert "lines of Python" in found(source_kit(journal, Reader), "runs_as_it_declares")


def test_a_call_that_holds_the_lock_is_found(journal):
    class Reader(journal.JournalReader):
        async def open(self, ctx):
            await super().open(ctx)
            await ctx.run(lambda: sum(range(60_000_000)))  # one native call that releases nothing

    assert "held the interpreter's lock" in found(source_kit(journal, Reader), "runs_as_it_declares")


def test_the_helper_thread_in_a_loop_connector_is_found(journal):
    class Reader(journal.JournalReader):
        async def open(self, ctx):
            await super().open(ctx)
            await ctx.run(int)

    assert "declare 'native'" in found(source_kit(journal, Reader, "loop"), "runs_as_it_declares")


# -- sinks -----------------------------------------------------------------------------------------


def sink_kit(journal, writer, guarantee="exactly-once"):
    class Connector(journal.JournalConnector):
        def writer(self, table):
            return writer(self._folder(table))

        def sink_guarantee(self, table):
            return guarantee

    class Kit(SinkConformance):
        schema = SCHEMA

        def connector(self):
            return Connector()

        def options(self):
            folder = self.folder / uuid.uuid4().hex
            folder.mkdir()
            return {"connector": "acme-journal", "path": str(folder), "format": "json"}

        def epochs(self):
            return [[(n * 10 + i, "x") for i in range(3)] for n in range(3)]

        async def visible(self, options):
            return rows_in(Path(options["path"]))

    return Kit


def rows_in(folder):
    rows = [json.loads(x) for p in sorted(folder.glob("*.log")) for x in p.read_text().splitlines()]
    return [(row["id"], row["name"]) for row in rows]


def test_the_right_sink_passes(journal):
    assert run_kit(sink_kit(journal, journal.JournalWriter)) == []


def test_rows_that_show_before_their_commit_are_found(journal):
    class Writer(journal.JournalWriter):
        def begin_checkpoint(self, checkpoint_id):
            cut = super().begin_checkpoint(checkpoint_id)

            async def shown():
                committables = await cut
                self._show(self._staged)
                return committables

            return shown()

    assert "behind 'durable'" in found(sink_kit(journal, Writer), "crash_behind_each_step")


def test_committables_that_are_not_committed_again_are_found(journal):
    class Writer(journal.JournalWriter):
        async def open(self, ctx, restored):
            await super().open(ctx, [])

    assert "are missing" in found(sink_kit(journal, Writer), "crash_behind_each_step")


def test_a_commit_that_adds_again_is_found(journal):
    class Writer(journal.JournalWriter):
        def _show(self, items):
            for item in items:
                data = Path(item["staged"]).read_bytes()
                with open(item["final"], "ab") as file:
                    file.write(data)

        def _sweep(self):
            return None

    assert "too many" in found(sink_kit(journal, Writer), "commit_may_be_repeated")


def test_an_aborted_epoch_that_is_forgotten_is_found(journal):
    class Writer(journal.JournalWriter):
        async def commit(self, checkpoint_id):
            self._staged = [item for item in self._staged if item["id"] == checkpoint_id]
            await super().commit(checkpoint_id)

    assert "are missing" in found(sink_kit(journal, Writer), "never_completes")


def test_a_cut_that_comes_late_is_found(journal):
    class Writer(journal.JournalWriter):
        def begin_checkpoint(self, checkpoint_id):
            async def late():
                return await super(Writer, self).begin_checkpoint(checkpoint_id)

            return late()

    assert "too many" in found(sink_kit(journal, Writer), "rows_behind_the_cut")


def test_an_acknowledgement_before_the_flush_is_found(journal):
    class Writer(journal.JournalWriter):
        """At least once, but rows that it acknowledges lie in memory until the next epoch."""

        def begin_checkpoint(self, checkpoint_id):
            async def nothing():
                return []

            return nothing()

        async def commit(self, checkpoint_id):
            await super().begin_checkpoint(checkpoint_id)
            await super().commit(checkpoint_id)

    said = found(sink_kit(journal, Writer, "at-least-once"), "crash_behind_each_step")
    assert "are not there" in said


# -- lookups ---------------------------------------------------------------------------------------

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
