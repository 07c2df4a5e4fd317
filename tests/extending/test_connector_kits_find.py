"""The kits of sources and sinks find what they are for: a wrong connector fails the check that names the fault."""

from __future__ import annotations

import json
import threading
import time
import uuid
from pathlib import Path

from penstock.testing import (
    SinkConformance,
    SourceConformance,
    run_kit,
)
from tests.extending.finding import SCHEMA, found

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
