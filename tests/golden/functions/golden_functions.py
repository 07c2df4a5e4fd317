"""Functions of a user's, per record and per Arrow batch, for the golden cases."""

import asyncio

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


@udf(result_type="BIGINT")
async def later(x):
    await asyncio.sleep(0)
    return None if x is None else x * 10


@udtf(result_types=["STRING", "INT"])
def words(line):
    for word in (line or "").split():
        yield word, len(word)


@udtf(result_types="ROW<n BIGINT>")
class Upto(TableFunction):
    def eval(self, n):
        yield from range(n)


@udtf(result_types=["INT"])
async def fetched(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@udaf(result_type="DOUBLE", name="mean")
class Mean:
    def create_accumulator(self):
        return [0.0, 0]

    def accumulate(self, acc, x):
        if x is not None:
            acc[0] += x
            acc[1] += 1

    def retract(self, acc, x):
        if x is not None:
            acc[0] -= x
            acc[1] -= 1

    def merge(self, acc, others):
        for other in others:
            acc[0] += other[0]
            acc[1] += other[1]

    def get_value(self, acc):
        return acc[0] / acc[1] if acc[1] else None


@udaf(result_type="BIGINT", per="batch")
class Total:
    def create_accumulator(self):
        return 0

    def accumulate(self, acc, xs):
        return acc + (pc.sum(xs).as_py() or 0)

    def retract(self, acc, xs):
        return acc - (pc.sum(xs).as_py() or 0)

    def get_value(self, acc):
        return acc
