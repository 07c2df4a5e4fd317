"""Specs of operators whose work Spark does."""

from __future__ import annotations

from penstock.jobgraph.specs.base import Spec
from penstock.jobgraph.specs.tables import SinkSpec
from penstock.types.logical import Schema


class SparkQuerySpec(Spec, frozen=True, kw_only=True, tag="spark-query"):
    """A source whose rows Spark computes.

    ``graph``: the job graph that the streaming engine would run (JSON, compressed, base64). ``sinks``:
    indices, in topological order, of the graph's sinks that belong to this operator. With ``rows`` None,
    Spark writes these sinks itself. Otherwise there is one sink, and the rows that it would receive, with
    the schema ``rows``, are this operator's output. ``backfill``: Spark reads only the history of the
    graph's sources and writes the state of its operators (``plan.backfill``); there are no sinks and no
    rows.
    """

    graph: str
    sinks: tuple[int, ...]
    rows: Schema | None = None
    backfill: bool = False


class SparkProgramSpec(Spec, frozen=True, kw_only=True, tag="spark-program"):
    """A user's function that receives a Spark session. It is the only operator in the graph of its
    ``SparkQuerySpec``.

    ``function``: its name in the job's function table. ``tables``: table name → graph (encoded as in
    ``SparkQuerySpec``) whose one sink receives the table's rows. ``refused``: table name → why it cannot
    be read. ``sinks``: the tables that the function may insert into. ``folder``: the folder of the
    project.
    """

    function: str
    folder: str = ""
    tables: dict[str, str] = {}
    refused: dict[str, str] = {}
    sinks: dict[str, SinkSpec] = {}
