"""The same with functions of Python. ``penstock run examples/orders_etl/job.py``

A record for which a function raises is set aside too; ``penstock dead-letters JOB`` lists what was.
"""

from __future__ import annotations

from penstock.api import *

COUNTRIES = {"DE", "FR", "IT"}
ORDER = Types.ROW_NAMED(
    ["id", "customer", "amount", "at", "country"],
    [Types.LONG(), Types.LONG(), Types.BIG_DEC(), Types.SQL_TIMESTAMP(3), Types.STRING()],
)


def cleaned(order: Row) -> Row:
    country = order.country.strip().upper()
    if country not in COUNTRIES:
        raise ValueError(f"we do not sell in {country}")
    return Row(order.id, order.customer, order.amount, order["at"], country)


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE orders (
      id       BIGINT,
      customer BIGINT,
      country  STRING,
      amount   DECIMAL(10, 2),
      `at`     TIMESTAMP(3)
    ) WITH (
      'connector' = 'filesystem',
      'path' = 'examples/orders_etl/data/orders.csv',
      'format' = 'csv',
      'on-error' = 'dead-letter'
    );

    CREATE TABLE cleaned (
      id       BIGINT,
      customer BIGINT,
      amount   DECIMAL(10, 2),
      `at`     TIMESTAMP(3),
      country  STRING
    ) WITH ('connector' = 'print');
""")
env.from_table("orders").map(cleaned, ORDER, on_error="dead-letter").insert_into("cleaned")
env.execute("orders etl")
