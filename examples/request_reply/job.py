"""The same with state of its own, which refuses what an account does not hold. ``penstock run examples/request_reply/job.py``"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.api import *

ANSWER = Types.ROW_NAMED(["account", "balance", "subject"], [Types.STRING(), Types.LONG(), Types.STRING()])


class Account(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        balance = (self.balance.value() or 0) + value.cents
        if balance >= 0:
            self.balance.update(balance)
        else:  # A payment that the account does not cover changes nothing.
            balance = self.balance.value() or 0
        yield Row(account=value.account, balance=balance, subject=value.reply)


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE deposits (
      account STRING,
      cents   BIGINT,
      reply   STRING METADATA FROM 'reply-to' VIRTUAL,   -- where the sender waits for the answer
      at_once AS PROCTIME()
    ) WITH (
      'connector' = 'nats-core',
      'subject' = 'accounts.deposit',
      'format' = 'json',
      'on-error' = 'dead-letter'
    );

    CREATE TABLE answers (
      account STRING,
      balance BIGINT,
      subject STRING METADATA                            -- the subject of the answer
    ) WITH (
      'connector' = 'nats-core',
      'subject' = 'accounts.unasked',                    -- where no reply is asked for
      'format' = 'json'
    );
""")
deposits = env.sql_query("SELECT account, cents, reply FROM deposits")
answers = deposits.key_by("account").process(Account(), ANSWER).uid("accounts")
answers.insert_into("answers")
env.execute("accounts")
