"""A notebook in a real kernel: SQL, tables, streams, an error and an interrupt, on one cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.cluster

FIRST = """%%sql
CREATE TABLE orders (who STRING, n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1000',
  'fields.who.kind' = 'sequence', 'fields.who.start' = '1', 'fields.who.end' = '1000', 'fields.n.min' = '7', 'fields.n.max' = '7');
SELECT n, COUNT(*) AS many FROM orders GROUP BY n"""
STREAM = """from penstock.api import *
env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["x1", "x2"], Types.STRING())
words.print()
env.execute("words")
words"""
FAILS = """def halved(word):
    return 1 // (len(word) - 2)
list(words.map(halved, Types.LONG()).execute_and_collect())"""
ENDLESS = """%%sql
CREATE TABLE clicks (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50',
  'fields.id.kind' = 'random');
SELECT id FROM clicks"""
JOBS = "%sql SHOW JOBS"


class Notebook:
    """A kernel to which cells are given one after the other."""

    def __init__(self) -> None:
        self.book = nbformat.v4.new_notebook()
        self.client = NotebookClient(self.book, timeout=240, kernel_name="python3", allow_errors=True)

    async def run(self, source: str) -> list[dict[str, Any]]:
        self.book.cells.append(nbformat.v4.new_code_cell(source))
        index = len(self.book.cells) - 1
        await self.client.async_execute_cell(self.book.cells[index], index)
        return list(self.book.cells[index].outputs)

    async def interrupted(self, source: str, when: str) -> list[dict[str, Any]]:
        """The outputs of a cell that is interrupted once its output has the text ``when``."""
        running = asyncio.ensure_future(self.run(source))
        while not running.done():
            if when in html_of(list(self.book.cells[-1].outputs)):
                await self.client.km.interrupt_kernel()
                break
            await asyncio.sleep(0.05)
        return await running


def html_of(outputs: list[dict[str, Any]]) -> str:
    return "\n".join(out["data"].get("text/html", "") for out in outputs if "data" in out)


def texts_of(outputs: list[dict[str, Any]]) -> str:
    return "".join(out.get("text", "") for out in outputs if out["output_type"] == "stream")


def test_a_notebook() -> None:
    async def main() -> None:
        book = Notebook()
        async with book.client.async_setup_kernel():
            assert await book.run("%load_ext penstock.notebook") == []

            first = html_of(await book.run(FIRST))
            assert ">7<" in first
            assert ">1000<" in first
            assert "1 row" in first
            assert "complete" in first

            named = html_of(await book.run("%%sql few\nSELECT n FROM orders WHERE n > 3"))
            assert "<b>Table</b>" in named
            assert ">BIGINT<" in named
            assert ">7<" in html_of(await book.run("few.limit(1).execute()"))

            stream = await book.run(STREAM)
            assert sorted(texts_of(stream).split()) == ["x1", "x2"]
            assert "<b>DataStream</b>" in html_of(stream)

            (error,) = [out for out in await book.run(FAILS) if out["output_type"] == "error"]
            shown = "\n".join(error["traceback"])
            assert "line 3: list(words.map(halved" in shown
            assert shown.count("return 1 // (len(word) - 2)") == 1
            assert "penstock/api" not in shown

            endless = html_of(await book.interrupted(ENDLESS, when="rows"))
            assert "interrupted, the job was cancelled" in endless
            jobs = html_of(await book.run(JOBS))
            assert "RUNNING" not in jobs
            while "CANCELED" not in jobs:
                assert "CANCELLING" in jobs
                jobs = html_of(await book.run(JOBS))

    asyncio.run(main())
