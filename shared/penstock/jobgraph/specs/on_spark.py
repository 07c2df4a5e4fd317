"""What Spark is left to do."""

from __future__ import annotations

from penstock.jobgraph.specs.base import Spec
from penstock.jobgraph.specs.tables import SinkSpec
from penstock.types.logical import Schema


class SparkQuerySpec(Spec, frozen=True, kw_only=True, tag="spark-query"):
    """A source whose rows Spark computes. ``graph``: the job graph (JSON, compressed, base64)
    that the streaming engine would run. Of its sinks those named in ``sinks`` (indices in
    topological order) are this operator's: Spark writes them itself when ``rows`` is None;
    else there is one, and the rows of that schema that it would get come out here.
    ``backfill``: Spark reads only what of the graph's sources is history, and leaves the state
    of its operators (``plan.backfill``); there are no sinks and no rows."""

    graph: str
    sinks: tuple[int, ...]
    rows: Schema | None = None
    backfill: bool = False


class SparkProgramSpec(Spec, frozen=True, kw_only=True, tag="spark-program"):
    """A function of the user's that is given Spark: the only operator in the graph of its
    ``SparkQuerySpec``. ``function``: its name in the job's function table. ``tables``: by name
    the graph (encoded as there) whose one sink gets the table's rows; ``refused``: why others
    cannot be read; ``sinks``: tables to insert into. ``folder``: the project's."""

    function: str
    folder: str = ""
    tables: dict[str, str] = {}
    refused: dict[str, str] = {}
    sinks: dict[str, SinkSpec] = {}
