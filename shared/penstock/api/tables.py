"""Reads tables declared in SQL as streams, and writes streams into them. Computed columns, metadata and
watermarks are declared once, in DDL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.transformations import Transformation, transform
from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import RecordTimeSpec
from penstock.plan import nodes as n
from penstock.plan.properties import Analysis
from penstock.sql import statements as st
from penstock.sql.catalog import sink_ref, source_ref
from penstock.sql.errors import Source
from penstock.sql.functions import user_function
from penstock.sql.parsing import parse_script
from penstock.sql.queries import QueryBinder
from penstock.sql.session import SqlSession
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.jobgraph import FunctionArtifact


class Tables:
    """The SQL session behind an environment. ``session``: that of a table environment; None: one of its own."""

    def __init__(self, config: Mapping[str, str], session: SqlSession | None = None) -> None:
        self._session = session or SqlSession(config)

    def execute(self, script: str) -> dict[str, str]:
        """Run declarations (CREATE …, DROP, SET) and return the settings after them."""
        for statement in parse_script(script):
            starts_job = isinstance(statement, st.CompilePlan) and statement.execute
            if starts_job or isinstance(statement, (st.Query, st.Insert, st.StatementSet, st.ExecutePlan)):
                raise UnsupportedError(
                    "a query in execute_sql of the DataStream API",
                    expected="CREATE TABLE, CREATE VIEW, CREATE FUNCTION, DROP, SET",
                    where=str(statement.position),
                    remedy="use env.sql_query(…), or penstock sql for a whole script",
                )
            self._session.run(statement)
        return dict(self._session.config)

    def create_function(self, name: str, function: Any) -> None:
        made = user_function(name, function, what=name, where="create_temporary_function")
        self._session.catalog.functions.add(made)

    def functions(self) -> dict[str, FunctionArtifact]:
        """The functions declared so far, which are shipped with the job."""
        known = self._session.catalog.functions
        return known.artifacts(known.names())

    def scan(self, name: str) -> Transformation:
        """The table's rows, with its rowtime as their event time."""
        table = source_ref(self._session.catalog.table(name, "from_table"), self._session.config)
        if table.changelog != "append":
            raise UnsupportedError(
                f"table '{name}', whose rows are updated, as a stream",
                expected="a table of inserts alone",
                got=f"connector '{table.connector}' with a changelog ({table.changelog})",
                where="from_table",
                remedy="read it in SQL, or with a format that has no changes (json)",
            )
        return timed_step(n.Scan(table=table, schema=table.schema), name)

    def query(self, text: str) -> Transformation:
        """The rows of an append-only query."""
        statements = parse_script(text)
        if len(statements) != 1 or not isinstance(statements[0], st.Query):
            raise UnsupportedError("not a query", expected="one SELECT", got=text[:60])
        binder = QueryBinder(self._session.catalog, self._session.config, Source(statements[0].text))
        node = binder.statement(statements[0].query).node
        if Analysis().of(node).updating:
            raise UnsupportedError(
                "a query whose rows are updated, as a stream",
                expected="an append-only query: filters, projections, windows, interval joins",
                got=text.strip()[:60],
                remedy="group by a window, or run the query as SQL",
            )
        return timed_step(node, "Query")

    def sink(self, name: str) -> n.TableRef:
        return sink_ref(self._session.catalog.table(name, "insert_into"))


def timed_step(node: n.Node, name: str, rowtimes: Collection[int] | None = None) -> Transformation:
    """The rows of a plan node as a step, with its first event-time column as their event time.

    ``rowtimes``: numbers of these columns; None: those that the node has.
    """
    step = Transformation(lambda s, inputs, c: node, (), node.schema, name, configurable=False)
    times = sorted(Analysis().of(node).rowtimes if rowtimes is None else rowtimes)
    times = [i for i in times if isinstance(node.schema.types[i], t.TIMESTAMPS)]
    if not times:
        return step
    spec = RecordTimeSpec(kind="assign", column=times[0])
    return transform(lambda s, c: spec, (step,), node.schema, "Event time")
