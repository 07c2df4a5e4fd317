import asyncio
import os

import pytest

from penstock.errors import ConnectorError
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def rows(first, last):
    return [(i, f"name-{i}") for i in range(first, last)]


def options(folder, format_="json", **more):
    out = {"connector": "filesystem", "path": str(folder), "format": format_, **more}
    return {**out, "csv.header": "true"} if format_ == "csv" else out


async def visible(harness, folder, format_="json"):
    if not [n for n in os.listdir(folder) if not n.startswith("_")]:
        return []
    return sorted(await harness.read_all(SCHEMA, options(folder, format_)))


@pytest.mark.parametrize("format_", ["json", "csv", "parquet", "orc", "arrow"])
async def test_rows_show_when_their_checkpoint_is_complete(harness, tmp_path, format_):
    opts = options(tmp_path, format_)
    harness.connector(SCHEMA, opts, role="sink")
    writer = await harness.writer(SCHEMA, opts)
    assert not writer.needs_commit()
    writer.write(Batch.of(SCHEMA, rows(0, 10_000)))
    assert writer.needs_commit()
    cut = writer.begin_checkpoint(1)
    writer.write(Batch.of(SCHEMA, rows(10_000, 10_010)))
    state = await cut
    assert await visible(harness, tmp_path, format_) == []
    await writer.commit(1)
    await writer.commit(1)
    assert await visible(harness, tmp_path, format_) == rows(0, 10_000)
    assert len(state) == 1
    await writer.begin_checkpoint(2)
    await writer.commit(2)
    assert await visible(harness, tmp_path, format_) == rows(0, 10_010)
    assert not writer.needs_commit()
    names = sorted(n for n in os.listdir(tmp_path) if not n.startswith("_"))
    assert [n.split("-", 2)[2] for n in names] == [f"0-1-0.{format_}", f"0-2-0.{format_}"]
    await writer.close()


async def test_a_restored_attempt_commits_again_and_sweeps_the_rest(harness, tmp_path):
    opts = options(tmp_path)
    writer = await harness.writer(SCHEMA, opts)
    writer.write(Batch.of(SCHEMA, rows(0, 5)))
    state = await writer.begin_checkpoint(1)
    writer.write(Batch.of(SCHEMA, rows(5, 9)))
    await writer.begin_checkpoint(2)  # never completed
    writer.write(Batch.of(SCHEMA, rows(9, 12)))
    await writer.close()

    second = await harness.writer(SCHEMA, opts, state, attempt=2)
    assert await visible(harness, tmp_path) == rows(0, 5)
    third = await harness.writer(SCHEMA, opts, state, attempt=3)
    assert await visible(harness, tmp_path) == rows(0, 5)
    third.write(Batch.of(SCHEMA, rows(5, 7)))
    assert len(os.listdir(tmp_path / "_pending")) >= 1
    await third.begin_checkpoint(3)
    await third.commit(3)
    assert await visible(harness, tmp_path) == rows(0, 7)
    assert os.listdir(tmp_path / "_pending") == []
    await second.close()
    await third.close()


async def test_it_needs_a_commit_from_the_first_row_to_the_last_rename(harness, tmp_path):
    """Also while the row is nowhere yet: taken from the queue, its file not opened; or its
    file being closed. A task that asks then must not finish without a final checkpoint."""
    asked = []

    async def run(call):
        asked.append(writer.needs_commit())
        try:
            return await asyncio.get_running_loop().run_in_executor(None, call)
        finally:
            asked.append(writer.needs_commit())

    opts = options(tmp_path, "parquet", **{"sink.rolling-policy.file-size": "1 kb"})
    writer = await harness.writer(SCHEMA, opts)
    writer.ctx.run = run
    writer.write(Batch.of(SCHEMA, rows(0, 5_000)))
    await writer.begin_checkpoint(1)
    assert writer.needs_commit()
    assert len(asked) > 4
    assert all(asked)
    await writer.commit(1)
    assert not writer.needs_commit()
    await writer.close()


async def test_a_file_that_a_zombie_renames_first_is_committed_once(harness, tmp_path):
    opts = options(tmp_path)
    zombie = await harness.writer(SCHEMA, opts)
    zombie.write(Batch.of(SCHEMA, rows(0, 5)))
    state = await zombie.begin_checkpoint(1)
    _, heir = await asyncio.gather(zombie.commit(1), harness.writer(SCHEMA, opts, state, attempt=2))
    assert await visible(harness, tmp_path) == rows(0, 5)
    await zombie.close()
    await heir.close()


async def test_an_aborted_checkpoint_belongs_to_the_next(harness, tmp_path):
    writer = await harness.writer(SCHEMA, options(tmp_path))
    writer.write(Batch.of(SCHEMA, rows(0, 3)))
    assert len(await writer.begin_checkpoint(1)) == 1
    writer.write(Batch.of(SCHEMA, rows(3, 5)))
    state = await writer.begin_checkpoint(2)
    assert len(state) == 2
    await writer.close()
    restored = await harness.writer(SCHEMA, options(tmp_path), state, attempt=2)
    assert await visible(harness, tmp_path) == rows(0, 5)
    await restored.close()


async def test_files_roll_by_size(harness, tmp_path):
    opts = options(tmp_path, **{"sink.rolling-policy.file-size": "10 kb"})
    writer = await harness.writer(SCHEMA, opts)
    writer.write(Batch.of(SCHEMA, rows(0, 20_000)))
    assert len(await writer.begin_checkpoint(1)) > 2
    await writer.commit(1)
    assert await visible(harness, tmp_path) == rows(0, 20_000)
    await writer.close()


async def test_two_sinks_and_two_subtasks_share_a_folder(harness, tmp_path):
    writers = [
        await harness.writer(SCHEMA, options(tmp_path), uid=uid, subtask_index=i, parallelism=2)
        for uid in ("a", "b")
        for i in (0, 1)
    ]
    for n, writer in enumerate(writers):
        writer.write(Batch.of(SCHEMA, rows(n, n + 1)))
        await writer.begin_checkpoint(1)
        await writer.commit(1)
        await writer.close()
    assert await visible(harness, tmp_path) == rows(0, 4)


async def test_it_waits_when_too_much_is_queued(harness, tmp_path):
    writer = await harness.writer(SCHEMA, options(tmp_path, "parquet"))
    writer.write(Batch.of(SCHEMA, rows(0, 70_000)))
    assert not writer.ready()
    await writer.wait_ready()
    assert writer.ready()
    await writer.close()


async def test_lost_pending_files_and_full_folders_are_said(harness, tmp_path):
    writer = await harness.writer(SCHEMA, options(tmp_path))
    writer.write(Batch.of(SCHEMA, rows(0, 3)))
    state = await writer.begin_checkpoint(1)
    for name in os.listdir(tmp_path / "_pending"):
        os.unlink(tmp_path / "_pending" / name)
    with pytest.raises(ConnectorError, match="is gone") as gone:
        await harness.writer(SCHEMA, options(tmp_path), state, attempt=2)
    assert gone.value.retryable, "the file may come back"
    assert gone.value.domain == "user", "nothing of ours to correct: without Penstock's frames"
    await writer.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match="cannot write"):
        await harness.writer(SCHEMA, options(tmp_path / "file"))


async def test_object_storage_by_url(harness, monkeypatch):
    """The same through obstore, here its memory store in place of a bucket."""
    from obstore.store import MemoryStore

    store = MemoryStore()
    monkeypatch.setattr("obstore.store.from_url", lambda url, **_: store)
    for format_ in ("json", "parquet"):
        folder = f"s3://bucket/{format_}"
        writer = await harness.writer(SCHEMA, options(folder, format_))
        writer.write(Batch.of(SCHEMA, rows(0, 5_000)))
        state = await writer.begin_checkpoint(1)
        await writer.commit(1)
        await writer.close()
        again = await harness.writer(SCHEMA, options(folder, format_), state, attempt=2)
        await again.close()
        assert await harness.read_all(SCHEMA, options(folder + "/", format_)) == rows(0, 5_000)
        assert await harness.read_all(SCHEMA, options(folder + "/part-*", format_)) == rows(0, 5_000)


async def test_overwriting_subtasks_spare_each_others_files_whatever_their_prefix(harness, tmp_path):
    """The second subtask ends behind the first, whose files are in place already: both subtasks' rows stay."""
    (tmp_path / "old.json").write_text('{"id": 9, "name": "old"}\n')
    opts = options(tmp_path, **{"sink.overwrite": "true", "sink.part-prefix": "fresh"})
    writers = [await harness.writer(SCHEMA, opts, subtask_index=i, parallelism=2) for i in (0, 1)]
    for n, writer in enumerate(writers):
        writer.write(Batch.of(SCHEMA, rows(n, n + 1)))
        await writer.begin_checkpoint(1)
        await writer.commit(1)
    for writer in writers:
        await writer.finish()
        await writer.close()
    assert await visible(harness, tmp_path) == rows(0, 2)
