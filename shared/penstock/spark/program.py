"""Runs a project's Python step: calls the user's function with Spark and the project's tables.

The function runs in the driver process of a job on Spark (``penstock.spark.driver``), so progress,
cancellation and errors work as for every job. Its rows stay in Spark. A table of the SQL session is compiled,
as for a job, when the function asks for it.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import types as st

from penstock.errors import FunctionError, PenstockError, SparkJobError, SpecError, UnsupportedError, nearest
from penstock.plan.engine import decode_content
from penstock.spark.errors import translated
from penstock.spark.frames import Frame, col
from penstock.spark.graph import sink_nodes
from penstock.spark.packages import ship
from penstock.spark.partition_program import load_job_functions
from penstock.spark.session import is_connect
from penstock.spark.tables import TableWrite
from penstock.spark.typemap import column_names, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.jobgraph.specs import SparkProgramSpec
    from penstock.spark.engine import SparkJob
    from penstock.spark.graph import Node
    from penstock.types.logical import Field

_PYSPARK = os.path.dirname(pyspark.__file__) + os.sep
_INTEGERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)


class StepContext:
    """The argument of a step's function: Spark, tables to read and to insert into, configuration and folder.

    ``job``: the step as a job; ``spec``: what the planner found; ``uid``: the step's name.
    """

    def __init__(self, job: SparkJob, spec: SparkProgramSpec, uid: str) -> None:
        self._job, self._spec, self._uid = job, spec, uid
        self._open: list[SparkJob] = []
        #: Table → number of inserts into it.
        self._inserts: Counter[str] = Counter()

    @property
    def spark(self) -> SparkSession:
        """A Spark Connect session, or a classic one where ``spark.master`` names a cluster."""
        return self._job.session

    @property
    def config(self) -> Mapping[str, str]:
        """The job's configuration."""
        return self._job.graph.config

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return Path(self._spec.folder)

    def table(self, name: str) -> DataFrame:
        """The rows of the bounded table or view ``name``.

        Raises:
            UnsupportedError: It cannot be read or does not end; the error has the reason.
            SpecError: The project has no such table.
        """
        content = self._spec.tables.get(name)
        if content is None:
            if name in self._spec.refused:
                raise UnsupportedError(
                    f"table '{name}' in a Python step",
                    expected="a table or view that can be read and ends",
                    got=self._spec.refused[name],
                    where=self._uid,
                    remedy="read a bounded table: files, a database, or a stream with 'scan.bounded.mode'",
                )
            raise self._unknown(name, self._spec.tables, "read")
        from penstock.spark.engine import SparkJob

        job = self._job
        graph = msgspec.structs.replace(
            decode_content(content),
            functions=job.graph.functions,
            python_path=job.graph.python_path,
            config=job.graph.config,
        )
        inner = SparkJob(graph, job.session, job_id=job.job_id)
        self._open.append(inner)
        [sink] = sink_nodes(inner.nodes)
        frame = inner.input(sink, 0).renamed(sink.output)
        return frame.df.select(*frame.columns())

    def insert(self, name: str, frame: DataFrame) -> None:
        """INSERT INTO the table ``name``; committed, once, when the call returns.

        ``frame``: its columns are matched by name and must have the table's types (integers and floats may widen).

        Raises:
            SpecError: The project has no such table, or the columns differ.
        """
        spec = self._spec.sinks.get(name)
        if spec is None:
            raise self._unknown(name, self._spec.sinks, "insert into")
        have = {f.name: f.dataType for f in frame.schema.fields}
        wanted = {f.name: f for f in spec.schema.fields}
        if have.keys() != wanted.keys():
            raise SpecError(
                f"the rows do not fit table '{name}'",
                expected="the columns " + ", ".join(wanted),
                got=", ".join(have),
                where=self._uid,
                remedy=_columns_remedy(list(have), list(wanted)),
            )
        columns = [
            _fitting(name, field, have[field.name]).alias(column)
            for field, column in zip(spec.schema.fields, column_names(spec.schema), strict=True)
        ]
        self._inserts[name] += 1
        rows = Frame(frame.select(*columns), spec.schema)
        job, number = self._job, self._inserts[name]
        job.write(rows, TableWrite(spec, f"{self._uid}-{name}", job.job_id, job.context, checkpoint=number))

    def close(self) -> None:
        """Lets Spark drop the results that ``table`` kept."""
        for job in self._open:
            job.close()

    def _unknown(self, name: str, known: Mapping[str, Any], verb: str) -> SpecError:
        return SpecError(
            f"the project has no table '{name}' to {verb}",
            expected=", ".join(sorted(known)) or "a table that a step before, or this one's sql, declares",
            got=repr(name),
            where=self._uid,
            remedy=nearest(name, known)
            or f"CREATE TABLE {name} … in the step's sql, or in that of a step before",
        )


def _columns_remedy(have: list[str], wanted: list[str]) -> str:
    missing = [name for name in wanted if name not in have]
    extra = [name for name in have if name not in wanted]
    said = [f"give {', '.join(missing)} (a null where there is none)"] if missing else []
    said += [f"leave out {', '.join(extra)}"] if extra else []
    return f"{' and '.join(said)}: columns go by name"


def _fitting(table: str, field: Field, have: st.DataType) -> Any:
    """The column in the table's type. Raises SpecError if the conversion could lose values."""
    want = spark_type(field.type)
    value = col(field.name)
    if have == want:
        return value
    if isinstance(have, _INTEGERS) and isinstance(want, _INTEGERS):
        widens = _INTEGERS.index(type(have)) < _INTEGERS.index(type(want))
    else:
        widens = (isinstance(have, st.FloatType) and isinstance(want, st.DoubleType)) or (
            # Both are in UTC in our sessions.
            isinstance(have, (st.TimestampType, st.TimestampNTZType))
            and isinstance(want, (st.TimestampType, st.TimestampNTZType))
        )
    if not widens and have.simpleString() != want.simpleString():  # otherwise only nullability differs
        raise SpecError(
            f"column '{field.name}' does not fit table '{table}'",
            expected=f"{field.type} (in Spark {want.simpleString()})",
            got=f"{have.simpleString()} ({type(have).__name__})",
            remedy="pyspark.ml.functions.vector_to_array makes an array of a vector"
            if isinstance(have, st.UserDefinedType)
            else f"cast it: F.col('{field.name}').cast('{want.simpleString()}')",
        )
    return value.cast(want)


def run_program(job: SparkJob, node: Node, spec: SparkProgramSpec) -> None:
    """Calls the step's function. Raises FunctionError, with the user's own lines, if the function raises."""
    function = load_job_functions(job.context)(spec.function)
    step = StepContext(job, spec, node.name)
    with tempfile.TemporaryDirectory(prefix="penstock-step-") as folder:
        if is_connect(job.session):
            # Spark's workers import the modules of the functions that the step passes to Spark.
            ship(job.session, job.graph.python_path, Path(folder))
        try:
            function(step)
        except PenstockError:
            raise
        except SystemExit as err:
            raise FunctionError(
                f"{node.name} called sys.exit({'' if err.code is None else repr(err.code)})",
                expected="a function that returns when its work is done, or raises what went wrong",
                where=node.name,
                remedy="return instead; raise an exception to fail the step",
                user_traceback=_own_lines(err, job.graph.python_path, str(err)),
            ) from err
        except Exception as err:
            raise _failed(err, node.name, job.graph.python_path) from err
        finally:
            step.close()


def _failed(err: Exception, where: str, python_path: tuple[str, ...]) -> PenstockError:
    text = str(err).strip().splitlines() or [""]
    if isinstance(err, PySparkException):
        out = translated(err)
        out.where = out.where or where
        own = _own_lines(err, python_path, text[0] if isinstance(out, SparkJobError) else out.message)
        out.user_traceback = f"{own}\n{out.user_traceback}" if out.user_traceback else own
        return out
    own = _own_lines(err, python_path, text[0])
    return FunctionError(f"{where} raised {type(err).__name__}: {text[0]}", where=where, user_traceback=own)


def _own_lines(err: BaseException, python_path: tuple[str, ...], message: str) -> str:
    """The traceback from the first to the last line of the user's code, without the frames of Spark's client
    after it."""
    frames = list(traceback.extract_tb(err.__traceback__))
    if isinstance(err, PySparkException):
        # Spark puts the worker's frames after those of its client; the message shows the worker's frames
        # anyway.
        frames = list(itertools.takewhile(lambda f: not f.filename.startswith(_PYSPARK), frames))
    mine = [i for i, f in enumerate(frames) if any(f.filename.startswith(p) for p in python_path)]
    shown = frames[mine[0] : mine[-1] + 1] if mine else frames
    lines = traceback.format_list(shown)
    return f"Traceback (most recent call last):\n{''.join(lines)}{type(err).__name__}: {message}"
