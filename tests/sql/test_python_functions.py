"""A user's Python functions in SQL: declared, registered, called, and what goes wrong. Their values:
tests/golden."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FunctionError, SqlError, UnsupportedError
from penstock.sql.functions import register_module
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

MODULE = """
import pyarrow.compute as pc
from penstock.api import ScalarFunction, TableFunction, Types, udaf, udf, udtf

@udf(result_type="BIGINT", input_types=["BIGINT", "BIGINT"])
def plus(a, b):
    return None if a is None or b is None else a + b

@udf(result_type="DOUBLE", per="batch")
def halved(x):
    return pc.divide(pc.cast(x, "float64"), 2.0)

@udf
def shout(text: str) -> str:
    return text.upper() + "!"

@udf(result_type=Types.STRING())
class Prefixed(ScalarFunction):
    def open(self, context):
        self.prefix = context.get_job_parameter("user.prefix", "none")
    def eval(self, x):
        return f"{self.prefix}-{x}"

@udf(result_type="ROW<a INT, b STRING>")
def pair(x):
    return (x, str(x) * 2)

@udtf(result_types=["STRING", "INT"])
def words(line):
    for w in (line or "").split():
        yield w, len(w)

@udtf(result_types="ROW<n BIGINT>")
class Upto(TableFunction):
    def eval(self, n):
        yield from range(n)

@udaf(result_type="DOUBLE", name="mean")
class Mean:
    def create_accumulator(self): return [0.0, 0]
    def accumulate(self, acc, x):
        if x is not None: acc[0] += x; acc[1] += 1
    def retract(self, acc, x):
        if x is not None: acc[0] -= x; acc[1] -= 1
    def merge(self, acc, others):
        for o in others: acc[0] += o[0]; acc[1] += o[1]
    def get_value(self, acc): return acc[0] / acc[1] if acc[1] else None

@udaf(result_type="BIGINT", per="batch")
class Total:
    def create_accumulator(self): return 0
    def accumulate(self, acc, xs): return acc + (pc.sum(xs).as_py() or 0)
    def retract(self, acc, xs): return acc - (pc.sum(xs).as_py() or 0)
    def get_value(self, acc): return acc

@udf(result_type="BIGINT")
def picky(x):
    if x == 3:
        raise ValueError("no threes")
    return x

@udf(result_type="INT")
def wrong(x):
    return "text"

@udf(result_type="BIGINT")
def uneven(x):
    return x / 2 if x == 3 else x

@udaf(result_type="BIGINT")
class Half:
    def create_accumulator(self): return [0]
    def accumulate(self, acc, x): acc[0] += x
    def get_value(self, acc): return acc[0] / 4

@udaf(result_type="BIGINT")
class Broken:
    def create_accumulator(self): return 0
    def accumulate(self, acc, x): return acc + 1 // (x - 3)
    def get_value(self, acc): return acc
"""

Session = Callable[..., SqlSession]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    before, modules = list(sys.path), set(sys.modules)

    def make(text: str = MODULE, name: str = "my_sql_functions", **config: str) -> SqlSession:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        made = SqlSession({"parallelism.default": "1", **config})
        register_module(made.catalog.functions, path)
        made.path = path  # type: ignore[attr-defined]
        return made

    yield make
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def rows(session: SqlSession, sql: str) -> list[tuple[Any, ...]]:
    job = session.execute(sql).job
    assert job is not None
    # As in a slot on another host: the user's module is not there.
    sys.modules.pop("my_sql_functions", None)
    return sorted(run_graph(job.job_graph).rows, key=repr)


NUMBERS = "(VALUES (1, 'a b'), (2, 'ccc'), (3, 'd')) AS v(x, s)"


def test_create_function_names_one(session: Session) -> None:
    made = session()
    made.execute("CREATE FUNCTION my_plus AS 'my_sql_functions.plus' LANGUAGE PYTHON")
    assert rows(made, f"SELECT my_plus(x, 10) FROM {NUMBERS} WHERE x = 1") == [(11,)]
    made.execute("DROP FUNCTION my_plus")
    with pytest.raises(SqlError, match="unknown function"):
        made.execute(f"SELECT my_plus(x, 10) FROM {NUMBERS}")


def test_a_function_that_raises_says_where_with_the_record(session: Session) -> None:
    with pytest.raises(FunctionError) as err:
        rows(session(), f"SELECT picky(x) FROM {NUMBERS}")
    text = str(err.value)
    assert text.startswith("Traceback")
    assert "in picky" in text
    assert "ValueError: no threes" in text
    assert err.value.got == "arguments (3)"


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_rows_that_fail_are_left_out_where_that_is_wanted(session: Session, policy: str) -> None:
    made = session(**{"table.exec.on-error": policy})
    job = made.execute(
        f"SELECT picky(x), w FROM {NUMBERS}, LATERAL TABLE(words(s)) AS t(w, n) WHERE CAST(x AS INT) > 0"
    ).job
    assert job is not None
    result = run_graph(job.job_graph)
    assert sorted(result.rows) == [(1, "a"), (1, "b"), (2, "ccc")]
    assert result.counters["numRecordsInErrors"] == 1
    letters = asyncio.run(_letters(result.store))
    assert len(letters) == (policy == "dead-letter")
    assert all("no threes" in letter for letter in letters)


ASYNC = """
import asyncio
from penstock.api import ScalarFunction, udf, udtf

@udf(result_type="INT")
async def slowly(x):
    await asyncio.sleep(0.002 * (x % 3))
    return None if x == 2 else x * 10

@udf(result_type="INT")
class HowMany(ScalarFunction):
    def open(self, context):
        self.running = 0
    async def eval(self, x):
        self.running += 1
        now = self.running
        await asyncio.sleep(0.001)
        self.running -= 1
        return now

@udf(result_type="INT", per="batch")
async def batched(x):
    await asyncio.sleep(0)
    return [None if v is None else v + 1 for v in x.to_pylist()]

@udf(result_type="STRING")
class Named(ScalarFunction):
    def open(self, context):
        self.word = context.get_job_parameter("user.word", "none")
    async def eval(self, x):
        await asyncio.sleep(0)
        return f"{self.word}{x}"

@udf(result_type="INT")
async def picky(x):
    await asyncio.sleep(0)
    if x == 3:
        raise ValueError("no threes")
    return x

@udf(result_type="INT")
async def stuck(x):
    await asyncio.sleep(3600)

@udtf(result_types=["INT"])
async def listed(x):
    await asyncio.sleep(0)
    if x == 3:
        raise ValueError("no threes")
    return range(x)

@udtf(result_types=["INT", "STRING"])
async def streamed(x):
    for i in range(x - 1):
        await asyncio.sleep(0)
        yield i, "s" * i

@udf(result_type="BIGINT")
async def slowly_uneven(x):
    await asyncio.sleep(0)
    return x / 2 if x == 3 else x
"""


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT x, slowly(x) + 1 FROM {NUMBERS}", [(1, 11), (2, None), (3, 31)]),
        (f"SELECT slowly(slowly(x)), batched(slowly(x)), Named(x) FROM {NUMBERS} WHERE x <> 2",
         [(100, 11, "w1"), (300, 31, "w3")]),
        (f"SELECT x FROM {NUMBERS} WHERE slowly(x) > 10 OR slowly(x) IS NULL", [(2,), (3,)]),
        (f"SELECT slowly(x) > 10, COUNT(*) FROM {NUMBERS} GROUP BY slowly(x) > 10", [(False, 1), (True, 1), (None, 1)]),
        (f"SELECT slowly(x) AS k, SUM(x) FROM {NUMBERS} GROUP BY slowly(x) HAVING slowly(SUM(x)) < 20", [(10, 1)]),
        (f"SELECT CASE WHEN x > 1 THEN picky(1) ELSE 0 END FROM {NUMBERS}", [(0,), (1,), (1,)]),
        (f"SELECT x, n FROM {NUMBERS}, LATERAL TABLE(listed(x)) AS t(n) WHERE x < 3", [(1, 0), (2, 0), (2, 1)]),
        (f"SELECT x, n, w FROM {NUMBERS} LEFT JOIN LATERAL TABLE(streamed(x)) AS t(n, w) ON TRUE",
         [(1, None, None), (2, 0, ""), (3, 0, ""), (3, 1, "s")]),
    ],
)  # fmt: skip
def test_async_functions_give_their_values(session: Session, sql: str, expected: list[Any]) -> None:
    assert sorted(rows(session(ASYNC, **{"user.word": "w"}), sql), key=repr) == sorted(expected, key=repr)


def test_async_calls_are_under_way_together_up_to_the_limit(session: Session) -> None:
    made = session(ASYNC, **{"table.exec.async-scalar.max-concurrent-operations": "4"})
    made.execute(
        """CREATE TABLE s (x INT) WITH ('connector' = 'datagen', 'rows-per-second' = '0',
        'fields.x.kind' = 'sequence', 'fields.x.start' = '3', 'fields.x.end' = '500')"""
    )
    out = rows(made, "SELECT x, slowly(x), HowMany(x) FROM s")
    assert [(x, y) for x, y, _ in sorted(out)] == [(x, 10 * x) for x in range(3, 501)]
    assert {n for *_, n in out} == {1, 2, 3, 4}


def test_async_functions_that_raise(session: Session) -> None:
    with pytest.raises(FunctionError) as err:
        rows(session(ASYNC), f"SELECT picky(x) FROM {NUMBERS}")
    assert str(err.value).startswith("Traceback")
    assert "ValueError: no threes" in str(err.value)
    assert err.value.got == "arguments (3)"
    limit = {"table.exec.async-scalar.timeout": "20 ms"}
    with pytest.raises(FunctionError, match=r"no answer within 0\.02 s"):
        rows(session(ASYNC, **limit), f"SELECT stuck(x) FROM {NUMBERS}")


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_async_rows_that_fail_are_left_out_where_that_is_wanted(session: Session, policy: str) -> None:
    for sql, expected in (
        (f"SELECT picky(x), slowly(x) FROM {NUMBERS}", [(1, 10), (2, None)]),
        (f"SELECT x, n FROM {NUMBERS}, LATERAL TABLE(listed(x)) AS t(n)", [(1, 0), (2, 0), (2, 1)]),
    ):
        made = session(ASYNC, **{"table.exec.on-error": policy})
        result = run_graph(made.execute(sql).job.job_graph)
        assert sorted(result.rows) == expected
        assert result.counters["numRecordsInErrors"] == 1
        letters = asyncio.run(_letters(result.store))
        assert len(letters) == (policy == "dead-letter")


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        (f"SELECT a.x FROM {NUMBERS} JOIN (VALUES (1)) AS a(x) ON v.x > a.x AND picky(v.x + a.x) > 1", "condition of a join"),
        (f"SELECT n FROM {NUMBERS}, LATERAL TABLE(listed(picky(x))) AS t(n)", "argument of a table function"),
        ("SELECT * FROM computed", "computed column of table 'computed'"),
    ],
)  # fmt: skip
def test_async_functions_where_none_can_stand(session: Session, sql: str, place: str) -> None:
    made = session(ASYNC)
    made.execute(
        "CREATE TABLE computed (x INT, y AS picky(x)) WITH ('connector' = 'datagen', 'number-of-rows' = '3')"
    )
    with pytest.raises(UnsupportedError, match=place):
        made.execute(sql)


async def _letters(store: Any) -> list[str]:
    keys = [key for key, _ in await store.list("") if "/dead-letters/" in key]
    return [line for key in keys for line in (await store.get(key)).decode().splitlines()]


def test_casts_that_fail_are_left_out_too(session: Session) -> None:
    made = session(**{"table.exec.on-error": "skip"})
    assert rows(made, "SELECT CAST(s AS INT) FROM (VALUES ('1'), ('b'), ('3')) AS v(s)") == [(1,), (3,)]


def test_an_aggregate_that_raises_says_where(session: Session) -> None:
    with pytest.raises(FunctionError, match="ZeroDivisionError") as err:
        rows(session(), f"SELECT Broken(x) FROM {NUMBERS}")
    assert str(err.value).startswith("Traceback")
    assert err.value.where == "function Broken.accumulate"


def test_a_result_of_another_type_is_refused(session: Session) -> None:
    with pytest.raises(FunctionError, match="no INT"):
        rows(session(), f"SELECT wrong(x) FROM {NUMBERS}")


def test_no_result_is_cut_to_its_type(session: Session) -> None:
    with pytest.raises(FunctionError, match="no BIGINT") as err:
        rows(session(), f"SELECT uneven(x) FROM {NUMBERS}")
    assert err.value.got == "1.5 (float) for arguments (3)"
    with pytest.raises(FunctionError, match="no BIGINT") as err:
        rows(session(), f"SELECT Half(x) FROM {NUMBERS}")
    assert err.value.got == "(1.5) (float)"
    assert err.value.where == "function Half.get_value"


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
@pytest.mark.parametrize(
    ("text", "sql"),
    [
        (MODULE, f"SELECT uneven(x) FROM {NUMBERS}"),
        (ASYNC, f"SELECT slowly_uneven(x) FROM {NUMBERS}"),
    ],
    ids=["plain", "async"],
)
def test_a_result_of_another_type_is_a_row_that_failed(
    session: Session, policy: str, text: str, sql: str
) -> None:
    made = session(text, **{"table.exec.on-error": policy})
    result = run_graph(made.execute(sql).job.job_graph)
    assert sorted(result.rows) == [(1,), (2,)]
    assert result.counters["numRecordsInErrors"] == 1
    letters = asyncio.run(_letters(result.store))
    assert len(letters) == (policy == "dead-letter")
    assert all("1.5 (float) for arguments (3)" in letter for letter in letters)


@pytest.mark.parametrize(
    ("sql", "message", "remedy"),
    [
        (f"SELECT plus(x) FROM {NUMBERS}", "plus takes 2 arguments", None),
        (f"SELECT plus(x, s) FROM {NUMBERS}", "argument 2 of plus does not fit", "CAST it AS BIGINT"),
        (f"SELECT pluss(x, 1) FROM {NUMBERS}", "unknown function pluss", None),
    ],
)
def test_calls_are_checked(session: Session, sql: str, message: str, remedy: str | None) -> None:
    with pytest.raises(SqlError, match=f"(?i){message}") as err:
        session().execute(sql)
    assert err.value.where is not None
    assert err.value.where.startswith("line 1")
    assert remedy is None or err.value.remedy == remedy


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("x = 1", SqlError, "declares no function"),
        ("import no_such_package", FunctionError, "No module named 'no_such_package'"),
        ("def f(:", FunctionError, "SyntaxError"),
        ("raise ValueError('at import')", FunctionError, "at import"),
        ("import sys; sys.exit(3)", FunctionError, "SystemExit"),
        ("from penstock.api import udf\n@udf\ndef f(x): return x", Exception, "is not declared"),
        ("from penstock.api import udf\n@udf(result_type='NUMBR')\ndef f(x): return x", SqlError, "NUMBR"),
        ("from penstock.api import udf\n@udf(result_type=int)\ndef f(x): return x", SqlError, "not a type"),
        ("from penstock.api import udaf\n@udaf(result_type='INT')\nclass F:\n    async def accumulate(self, acc, x): ...",
         UnsupportedError, "async"),
        (
            "from penstock.api import udf\nimport threading\nlock = threading.Lock()\n"
            "@udf(result_type='INT')\ndef f(x):\n    with lock: return x",
            FunctionError,
            "cannot be sent",
        ),
    ],
)  # fmt: skip
def test_modules_are_checked(session: Session, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as err:
        session(text)
    assert "my_sql_functions" in str(err.value)


def test_a_missing_module_and_a_missing_function(session: Session, tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="not there"):
        register_module(SqlSession().catalog.functions, tmp_path / "absent.py")
    made = session()
    with pytest.raises(SqlError) as err:
        made.execute("CREATE FUNCTION f AS 'my_sql_functions.pluss' LANGUAGE PYTHON")
    assert err.value.remedy == "did you mean 'plus'?"
    with pytest.raises(SqlError, match="cannot be imported") as err:
        made.execute("CREATE FUNCTION f AS 'no_such_module.f' LANGUAGE PYTHON")
    assert "-py" in (err.value.remedy or "")
