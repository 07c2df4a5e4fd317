"""The statements of Flink 2.3's SQL, each with an example, and what Penstock answers.

``python -m tests.sql.flink_statements > docs/sql-statements.md`` runs every example and writes the page.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

#: What every example finds. ``{folder}``: a folder of its own.
SETTING = """
CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE s (a INT, b STRING) WITH ('connector' = 'blackhole');
CREATE TABLE p (a INT, dt STRING) PARTITIONED BY (dt)
  WITH ('connector' = 'filesystem', 'path' = '{folder}/p', 'format' = 'csv');
CREATE TABLE g (id INT, price INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:///{folder}/g.db', 'table-name' = 'g');
CREATE VIEW v AS SELECT a FROM t;
CREATE FUNCTION shout AS 'flink_statements_udf.shout' LANGUAGE PYTHON;
CREATE FUNCTION words AS 'flink_statements_udf.words' LANGUAGE PYTHON;
CREATE CATALOG c WITH ('type' = 'penstock', 'path' = '{folder}/c');
CREATE DATABASE c.d;
"""
FUNCTIONS = """
from penstock.api import udf, udtf

@udf(result_type="STRING")
def shout(text: str):
    return None if text is None else text.upper()

@udtf(result_types=["STRING"])
def words(text: str):
    yield from (text or "").split()
"""
_BATCH = "SET 'execution.runtime-mode' = 'BATCH';"


@dataclass(frozen=True, slots=True)
class Example:
    """``form``: the statement as the page shows it. ``text``: the example; the statements before its last prepare it.
    ``note``: what else is to be said if it runs; if it is refused, what is to be said instead of the error's remedy."""

    form: str
    text: str
    note: str = ""


def _of(form: str, text: str = "", note: str = "") -> Example:
    return Example(form, text or form, note)


GROUPS: dict[str, list[Example]] = {
    "Queries": [
        _of("SELECT … FROM … WHERE", "SELECT a, shout(b) FROM t WHERE a > 0"),
        _of("SELECT without FROM", "SELECT 1 + 1"),
        _of("SELECT DISTINCT, SELECT ALL", "SELECT DISTINCT a FROM t"),
        _of("VALUES", "VALUES (1, 'x'), (2, 'y')"),
        _of("TABLE t", "TABLE t"),
        _of("WITH … AS", "WITH x AS (SELECT a FROM t) SELECT * FROM x"),
        _of("WITH RECURSIVE", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r"),
        _of("GROUP BY, HAVING", "SELECT b, COUNT(*) FROM t GROUP BY b HAVING COUNT(*) > 0"),
        _of("GROUP BY GROUPING SETS, ROLLUP, CUBE, ()", "SELECT a, b, COUNT(*) FROM t GROUP BY GROUPING SETS ((a), (a, b), ())"),
        _of("TUMBLE, HOP, CUMULATE, SESSION",
            "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"),
        _of("OVER, WINDOW w AS", "SELECT a, SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY ts)"),
        _of("Top-N, deduplication by ROW_NUMBER", "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY b ORDER BY a) AS n FROM t) WHERE n <= 2"),
        _of("QUALIFY", "SELECT a FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY b ORDER BY a) = 1"),
        _of("JOIN, LEFT, RIGHT, FULL, CROSS, NATURAL, USING", "SELECT x.a FROM t AS x LEFT JOIN p AS y USING (a)"),
        _of("LATERAL (query)", "SELECT x.a, y.n FROM t AS x, LATERAL (SELECT COUNT(*) AS n FROM p WHERE p.a = x.a) AS y"),
        _of("LATERAL TABLE (f(…))", "SELECT a, w FROM t, LATERAL TABLE(words(b)) AS x (w)"),
        _of("UNNEST [WITH ORDINALITY]", "SELECT a, n, i FROM t, UNNEST(ARRAY[1, 2]) WITH ORDINALITY AS x (n, i)"),
        _of("FOR SYSTEM_TIME AS OF in a JOIN", "CREATE TABLE o (a INT, at AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '2');"
            "SELECT o.a FROM o LEFT JOIN g FOR SYSTEM_TIME AS OF o.at ON o.a = g.id"),
        _of("FOR SYSTEM_TIME AS OF a point in time", "SELECT * FROM p FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'"),
        _of("UNION, INTERSECT, EXCEPT [ALL]", "SELECT a FROM t UNION ALL SELECT a FROM p"),
        _of("IN, EXISTS, ANY, ALL, scalar subqueries", "SELECT a FROM t WHERE a IN (SELECT a FROM p)"),
        _of("ORDER BY, LIMIT n, LIMIT ALL, OFFSET, FETCH", f"{_BATCH} SELECT a FROM t ORDER BY a OFFSET 1 ROWS FETCH FIRST 1 ROW ONLY"),
        _of("PIVOT", "SELECT * FROM (SELECT a, b FROM t) PIVOT (SUM(a) FOR b IN ('x', 'y'))",
            "of Flink's parser (Calcite); Flink's documentation does not name it"),
        _of("UNPIVOT", "SELECT * FROM (SELECT a, a AS c FROM t) UNPIVOT (v FOR n IN (a, c))"),
        _of("MATCH_RECOGNIZE", "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES x.a AS a PATTERN (x) DEFINE x AS a > 0)"),
        _of("TABLESAMPLE", "SELECT * FROM t TABLESAMPLE BERNOULLI (10)"),
        _of("f(TABLE t PARTITION BY …): process table functions", "SELECT * FROM f(rows => TABLE t PARTITION BY a)"),
        _of("TO_CHANGELOG(…)", "SELECT * FROM TO_CHANGELOG(input => TABLE t PARTITION BY a)"),
        _of("FROM_CHANGELOG(…)", "SELECT * FROM FROM_CHANGELOG(input => TABLE t)"),
        _of("ML_PREDICT(…)", "SELECT * FROM ML_PREDICT(TABLE t, MODEL m, DESCRIPTOR(a))"),
        _of("ML_EVALUATE(…)", "SELECT * FROM ML_EVALUATE(TABLE t, MODEL m, DESCRIPTOR(a), DESCRIPTOR(b), 'regression')"),
        _of("VECTOR_SEARCH(…)", "SELECT * FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(a), b, 3)"),
    ],
    "Hints": [
        _of("OPTIONS", "SELECT * FROM t /*+ OPTIONS('number-of-rows' = '2') */"),
        _of("STATE_TTL", "SELECT /*+ STATE_TTL('t' = '1 d') */ b, COUNT(*) FROM t GROUP BY b"),
        _of("LOOKUP", "CREATE TABLE o (a INT, at AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '2');"
            "SELECT /*+ LOOKUP('table' = 'g', 'async' = 'true') */ o.a FROM o LEFT JOIN g FOR SYSTEM_TIME AS OF o.at ON o.a = g.id"),
        *[_of(hint, f"{_BATCH} SELECT /*+ {hint}(t) */ t.a FROM t JOIN p ON t.a = p.a")
          for hint in ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP")],
        _of("MULTI_JOIN", "SELECT /*+ MULTI_JOIN(t, p) */ t.a FROM t JOIN p ON t.a = p.a"),
    ],
    "Writing": [
        _of("INSERT INTO", "INSERT INTO s (b, a) SELECT b, a FROM t"),
        _of("EXECUTE INSERT …", "EXECUTE INSERT INTO s SELECT a, b FROM t"),
        _of("INSERT INTO … PARTITION (…)", "INSERT INTO p PARTITION (dt = 'z') SELECT a FROM t"),
        _of("INSERT OVERWRITE", "INSERT OVERWRITE p SELECT 3, 'w'"),
        _of("INSERT … ON CONFLICT DO DEDUPLICATE", "INSERT INTO s SELECT a, b FROM t ON CONFLICT DO DEDUPLICATE",
            "as without the clause, which Penstock does not demand"),
        _of("INSERT … ON CONFLICT DO NOTHING", "INSERT INTO s SELECT a, b FROM t ON CONFLICT DO NOTHING"),
        _of("INSERT … ON CONFLICT DO ERROR", "INSERT INTO s SELECT a, b FROM t ON CONFLICT DO ERROR"),
        _of("UPSERT INTO", "UPSERT INTO s SELECT a, b FROM t"),
        _of("UPDATE", f"{_BATCH} UPDATE g SET price = price + 1 WHERE id = 1", "of the tables that [DELETE and UPDATE](sql.md#delete-and-update) names"),
        _of("DELETE", f"{_BATCH} DELETE FROM g WHERE id = 1", "as UPDATE"),
        _of("TRUNCATE TABLE", f"{_BATCH} TRUNCATE TABLE p"),
        _of("EXECUTE STATEMENT SET BEGIN … END", "EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT a, b FROM t; INSERT INTO s SELECT a, b FROM t; END"),
        _of("BEGIN STATEMENT SET; … END;", "BEGIN STATEMENT SET; INSERT INTO s SELECT a, b FROM t; END"),
        _of("COMPILE PLAN … FOR", "COMPILE PLAN '{folder}/plan.json' FOR INSERT INTO s SELECT a, b FROM t"),
        _of("COMPILE AND EXECUTE PLAN … FOR", "COMPILE AND EXECUTE PLAN '{folder}/plan.json' FOR INSERT INTO s SELECT a, b FROM t"),
        _of("EXECUTE PLAN", "COMPILE PLAN '{folder}/plan.json' FOR INSERT INTO s SELECT a, b FROM t; EXECUTE PLAN '{folder}/plan.json'"),
    ],
    "CREATE": [
        _of("CREATE [TEMPORARY] TABLE", "CREATE TEMPORARY TABLE IF NOT EXISTS x (a INT, CONSTRAINT k PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'blackhole')"),
        _of("CREATE TABLE … LIKE", "CREATE TABLE x LIKE s"),
        _of("CREATE TABLE … AS", "CREATE TABLE x WITH ('connector' = 'blackhole') AS SELECT a FROM t"),
        _of("CREATE OR REPLACE TABLE … AS, REPLACE TABLE … AS", "CREATE OR REPLACE TABLE x WITH ('connector' = 'blackhole') AS SELECT a FROM t"),
        _of("DISTRIBUTED BY, DISTRIBUTED INTO", "CREATE TABLE x (a INT) DISTRIBUTED BY HASH(a) INTO 4 BUCKETS WITH ('connector' = 'blackhole')"),
        _of("UNIQUE (…)", "CREATE TABLE x (a INT, UNIQUE (a) NOT ENFORCED) WITH ('connector' = 'blackhole')"),
        _of("CREATE [TEMPORARY] VIEW", "CREATE TEMPORARY VIEW x AS SELECT a FROM t"),
        _of("CREATE [TEMPORARY [SYSTEM]] FUNCTION … LANGUAGE PYTHON", "CREATE TEMPORARY SYSTEM FUNCTION x AS 'flink_statements_udf.shout' LANGUAGE PYTHON"),
        _of("CREATE FUNCTION … LANGUAGE JAVA, SCALA", "CREATE FUNCTION x AS 'com.example.X' LANGUAGE JAVA"),
        _of("CREATE FUNCTION … USING JAR, ARTIFACT", "CREATE FUNCTION x AS 'm.x' LANGUAGE PYTHON USING ARTIFACT 's3://b/x.whl'"),
        _of("CREATE CATALOG", "CREATE CATALOG IF NOT EXISTS c2 COMMENT 'x' WITH ('type' = 'generic_in_memory')"),
        _of("CREATE DATABASE", "CREATE DATABASE IF NOT EXISTS c.d2 COMMENT 'x'"),
        _of("CREATE [OR ALTER] MATERIALIZED TABLE", "CREATE MATERIALIZED TABLE x FRESHNESS = INTERVAL '1' MINUTE AS SELECT a FROM t"),
        _of("CREATE [TEMPORARY] MODEL", "CREATE MODEL m INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'openai')"),
        _of("CREATE [TEMPORARY [SYSTEM]] CONNECTION", "CREATE CONNECTION x WITH ('type' = 'basic')"),
    ],
    "ALTER": [
        _of("ALTER TABLE … ADD, MODIFY, DROP (columns, key, watermark)", "ALTER TABLE s ADD (c INT FIRST, WATERMARK FOR w AS w, w TIMESTAMP(3))"),
        _of("ALTER TABLE … RENAME, RENAME TO", "ALTER TABLE s RENAME a TO c"),
        _of("ALTER TABLE … SET, RESET", "ALTER TABLE t SET ('number-of-rows' = '4')"),
        _of("ALTER TABLE … ADD PARTITION, DROP PARTITION", "ALTER TABLE p DROP PARTITION (dt = 'x')"),
        _of("ALTER TABLE … ADD, MODIFY, DROP DISTRIBUTION", "ALTER TABLE s ADD DISTRIBUTION BY HASH(a) INTO 3 BUCKETS"),
        _of("ALTER VIEW … AS, RENAME TO", "ALTER VIEW v AS SELECT 2 AS a"),
        _of("ALTER [TEMPORARY [SYSTEM]] FUNCTION", "ALTER TEMPORARY FUNCTION shout AS 'm.x' LANGUAGE PYTHON"),
        _of("ALTER CATALOG … SET, RESET, COMMENT", "ALTER CATALOG c COMMENT 'x'"),
        _of("ALTER DATABASE … SET", "ALTER DATABASE c.d SET ('owner' = 'x')"),
        _of("ALTER MATERIALIZED TABLE", "ALTER MATERIALIZED TABLE x SUSPEND"),
        _of("ALTER MODEL", "ALTER MODEL m RENAME TO n"),
        _of("ALTER CONNECTION", "ALTER CONNECTION x SET ('a' = 'b')"),
    ],
    "DROP": [
        _of("DROP [TEMPORARY] TABLE, VIEW", "DROP TABLE IF EXISTS s"),
        _of("DROP [TEMPORARY [SYSTEM]] FUNCTION", "DROP FUNCTION shout"),
        _of("DROP CATALOG", "DROP CATALOG c"),
        _of("DROP DATABASE [RESTRICT, CASCADE]", "DROP DATABASE IF EXISTS c.d CASCADE"),
        _of("DROP MATERIALIZED TABLE", "DROP MATERIALIZED TABLE x"),
        _of("DROP MODEL", "DROP TEMPORARY MODEL m"),
        _of("DROP CONNECTION", "DROP CONNECTION x"),
    ],
    "SHOW": [
        _of("SHOW CATALOGS [LIKE …]", "SHOW CATALOGS LIKE 'c%'"),
        _of("SHOW CURRENT CATALOG, CURRENT DATABASE", "SHOW CURRENT DATABASE"),
        _of("SHOW CREATE CATALOG", "SHOW CREATE CATALOG c"),
        _of("SHOW DATABASES", "SHOW DATABASES FROM c ILIKE 'D%'"),
        _of("SHOW TABLES, SHOW VIEWS", "SHOW TABLES FROM default_catalog.default_database NOT LIKE 'x%'"),
        _of("SHOW CREATE TABLE, SHOW CREATE VIEW", "SHOW CREATE VIEW v"),
        _of("SHOW COLUMNS", "SHOW COLUMNS FROM t LIKE 'a%'"),
        _of("SHOW PARTITIONS [PARTITION (…)]", "SHOW PARTITIONS p PARTITION (dt = 'y z')"),
        _of("SHOW FUNCTIONS, SHOW USER FUNCTIONS", "SHOW USER FUNCTIONS LIKE 's%'"),
        _of("SHOW PROCEDURES", "SHOW PROCEDURES FROM system LIKE 'c%'"),
        _of("SHOW [FULL] MODULES", "SHOW FULL MODULES"),
        _of("SHOW JOBS", "SHOW JOBS"),
        _of("SHOW JARS", "SHOW JARS"),
        _of("SHOW MATERIALIZED TABLES", "SHOW MATERIALIZED TABLES"),
        _of("SHOW CREATE [OR ALTER] MATERIALIZED TABLE", "SHOW CREATE OR ALTER MATERIALIZED TABLE x"),
        _of("SHOW MODELS", "SHOW MODELS"),
        _of("SHOW CREATE MODEL", "SHOW CREATE MODEL m"),
        _of("SHOW CONNECTIONS, SHOW CREATE CONNECTION", "SHOW CONNECTIONS"),
    ],
    "DESCRIBE, EXPLAIN, USE, SET and others": [
        _of("DESCRIBE [EXTENDED] t", "DESCRIBE EXTENDED t"),
        _of("DESCRIBE CATALOG, DATABASE [EXTENDED]", "DESC CATALOG EXTENDED c"),
        _of("DESCRIBE FUNCTION [EXTENDED]", "DESCRIBE FUNCTION EXTENDED shout"),
        _of("DESCRIBE JOB", "DESCRIBE JOB '228d70913eab60dda85c5e7f78b5782c'"),
        _of("DESCRIBE MODEL", "DESCRIBE MODEL m"),
        _of("DESCRIBE CONNECTION", "DESCRIBE CONNECTION x"),
        _of("EXPLAIN [PLAN FOR, ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE]", "EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT a FROM t"),
        _of("EXPLAIN STATEMENT SET BEGIN … END", "EXPLAIN STATEMENT SET BEGIN INSERT INTO s SELECT a, b FROM t; END"),
        _of("USE, USE CATALOG", "USE CATALOG c"),
        _of("USE MODULES", "USE MODULES core"),
        _of("LOAD MODULE", "LOAD MODULE hive WITH ('hive-version' = '3.1.3')"),
        _of("UNLOAD MODULE", "UNLOAD MODULE core"),
        _of("SET, RESET", "SET 'parallelism.default' = '2'"),
        _of("STOP JOB [WITH SAVEPOINT] [WITH DRAIN]", "STOP JOB '228d70913eab60dda85c5e7f78b5782c' WITH SAVEPOINT"),
        _of("CALL", "CREATE TABLE e (a INT) WITH ('connector' = 'delta', 'table-path' = '{folder}/e'); INSERT INTO e SELECT a FROM t;"
            "CALL system.compact('e')", "the procedures that SHOW PROCEDURES lists"),
        _of("ANALYZE TABLE", "ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS"),
        _of("ADD JAR", "ADD JAR '/x.jar'"),
        _of("REMOVE JAR", "REMOVE JAR '/x.jar'"),
        _of("QUIT, EXIT, CLEAR, HELP", "HELP", "they are words of the shell (`penstock sql`), and no statements of a script"),
    ],
}  # fmt: skip


class NoJobs:
    """A cluster that takes what the statements about jobs ask of it."""

    def jobs(self) -> list[dict[str, Any]]:
        return []

    def job(self, job_id: str) -> dict[str, Any]:
        return {"jid": job_id, "name": "x", "state": "RUNNING", "start-time": 0}

    def cancel(self, job_id: str) -> None:
        pass

    def stop(self, job_id: str, directory: str | None = None, *, drain: bool = False) -> str:
        return "trigger"

    def location(self, job_id: str, trigger_id: str, what: str, tell: Any = None) -> str:
        return "file:///savepoints/1"


def prepared(folder: Path) -> SqlSession:
    """A session with the tables, functions and catalog of ``SETTING``."""
    import sqlite3

    with sqlite3.connect(folder / "g.db") as database:
        database.execute("CREATE TABLE g (id INTEGER PRIMARY KEY, price INTEGER)")
        database.execute("INSERT INTO g VALUES (1, 10), (2, 20)")
    database.close()
    for name, row in (("dt=x", "1"), ("dt=y z", "2")):
        (folder / "p" / name).mkdir(parents=True)
        (folder / "p" / name / "rows.csv").write_text(row + "\n")
    (folder / "flink_statements_udf.py").write_text(FUNCTIONS)
    session = SqlSession(python_path=[str(folder)], folder=str(folder))
    session.jobs = NoJobs
    run(session, SETTING.replace("{folder}", str(folder)))
    return session


def run(session: SqlSession, script: str) -> None:
    """Runs every statement of the script, and its job to the end."""
    for result in session.run_script(script):
        if result.job is not None:
            run_graph(result.job.job_graph)


def answer(example: Example) -> str:
    """``runs``, or the words of the refusal. Another error passes through."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        sys.path.insert(0, made)
        try:
            session = prepared(folder)
            run(session, example.text.replace("{folder}", made))
        except UnsupportedError as error:
            return f"**refused**: {example.note or error.remedy}"
        finally:
            sys.path.remove(made)
            sys.modules.pop("flink_statements_udf", None)
    return f"runs; {example.note}" if example.note else "runs"


_HEAD = """# Statements of Flink's SQL

Every statement of Flink 2.3's SQL: whether Penstock runs it, and what to do instead where it does not. What is refused is refused by
name, with these words. [SQL](sql.md) shows how the statements are used.

`python -m tests.sql.flink_statements` runs an example of each line and writes this page; a test compares the two.
"""


def page() -> str:
    lines = [_HEAD]
    for title, examples in GROUPS.items():
        lines += [f"## {title}\n", "| statement | answer |", "|---|---|"]
        lines += [f"| {example.form} | {answer(example)} |".replace("\\n", " ") for example in examples]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
