"""A job for the tests: visits counted per visitor in value state, for ever."""

from penstock.api import (
    KeyedProcessFunction,
    Sink,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)


class CountVisits(KeyedProcessFunction):
    def open(self, runtime_context):
        self.visits = runtime_context.get_state(ValueStateDescriptor("visits", Types.LONG()))

    def process_element(self, value, ctx):
        n = (self.visits.value() or 0) + 1
        self.visits.update(n)
        yield value[0], n


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql(
    """CREATE TABLE clicks (who BIGINT, page BIGINT) WITH (
         'connector' = 'datagen', 'rows-per-second' = '2000',
         'fields.who.min' = '1', 'fields.who.max' = '1000')"""
)
(
    env.from_table("clicks")
    .key_by(lambda row: row[0], key_type=Types.LONG())
    .process(CountVisits(), output_type=Types.TUPLE([Types.LONG(), Types.LONG()]))
    .uid("visits")
    .sink_to(Sink.connector("blackhole"))
)
env.execute("visits")
