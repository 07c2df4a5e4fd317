"""The same with state and timers of its own. ``penstock run examples/fraud_alert/job.py``"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.api import *

MINUTE = 60_000
ALERT = Types.ROW_NAMED(
    ["account", "tried", "taken", "at"],
    [Types.LONG(), Types.DOUBLE(), Types.DOUBLE(), Types.SQL_TIMESTAMP(3)],
)


class FraudDetector(KeyedProcessFunction):
    """Remembers an account's small payment until its next payment, or for a minute.

    The times of the two payments decide. The timer only frees the state of accounts that pay no more: watermarks, and
    so timers, come after many rows, and a timer of a minute may fire later than that.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        tried = Types.TUPLE([Types.DOUBLE(), Types.LONG()])
        self.tried = runtime_context.get_state(ValueStateDescriptor("tried", tried))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        now = ctx.timestamp()
        before = self.tried.value()
        if before is not None:
            tried, tried_at = before
            if value.amount > 500 and now <= tried_at + MINUTE:
                yield Row(account=value.account, tried=tried, taken=value.amount, at=value["at"])
            ctx.timer_service().delete_event_time_timer(tried_at + MINUTE)
            self.tried.clear()
        if value.amount < 1:
            self.tried.update((value.amount, now))
            ctx.timer_service().register_event_time_timer(now + MINUTE)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        self.tried.clear()
        yield from ()


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE transactions (
      account BIGINT,
      amount  DOUBLE,
      `at`    TIMESTAMP(3),
      WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'examples/fraud_alert/data/transactions.json', 'format' = 'json');

    CREATE TABLE alerts (account BIGINT, tried DOUBLE, taken DOUBLE, `at` TIMESTAMP(3)) WITH ('connector' = 'print');
""")
alerts = env.from_table("transactions").key_by("account").process(FraudDetector(), ALERT)
alerts.insert_into("alerts")
env.execute("fraud alert")
