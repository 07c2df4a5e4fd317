"""What the Kafka builders and row schemas set, and what they refuse. No broker is asked."""

import pytest

from penstock.api import Types
from penstock.api.kafka import (
    DeliveryGuarantee,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.api.row_formats import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    RowFieldExtractorSchema,
)
from penstock.api.serialization import ByteArraySchema, SimpleStringSchema
from penstock.errors import PenstockError, SpecError, UnsupportedError
from penstock.types import logical as t

ROW = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


def source(values=None):
    return KafkaSource.builder().set_value_only_deserializer(values or SimpleStringSchema())


def test_a_source_is_a_table_of_the_connector():
    made = (
        source(CsvRowDeserializationSchema.Builder(ROW).set_field_delimiter("|").set_ignore_parse_errors(True).build())
        .set_bootstrap_servers("here:9092").set_topics("a", "b").set_group_id("g").set_client_id_prefix("c")
        .set_property("partition.discovery.interval.ms", "5000")
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST))
        .set_unbounded(KafkaOffsetsInitializer.timestamp(7)).build()
    )  # fmt: skip
    assert made.schema.names == ["id", "name"] or tuple(made.schema.names) == ("id", "name")
    assert made.all_options == {
        "connector": "kafka", "topic": "a;b", "properties.bootstrap.servers": "here:9092", "properties.group.id": "g",
        "properties.client.id": "c", "scan.topic-partition-discovery.interval": "5000 ms",
        "scan.startup.mode": "group-offsets", "properties.auto.offset.reset": "latest",
        "scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "7",
        "format": "csv", "csv.field-delimiter": "|", "csv.ignore-parse-errors": "true",
    }  # fmt: skip


def test_offsets_are_those_of_one_topic():
    places = {KafkaTopicPartition("a", 1): 5, KafkaTopicPartition("a", 0): 3}
    options = KafkaOffsetsInitializer.offsets(places).options("scan.startup")
    assert options["scan.startup.specific-offsets"] == "partition:0,offset:3;partition:1,offset:5"
    with pytest.raises(UnsupportedError, match="several topics"):
        KafkaOffsetsInitializer.offsets({**places, KafkaTopicPartition("b", 0): 1})


def test_a_sink_is_a_table_of_the_connector():
    values = CsvRowSerializationSchema.Builder(ROW).set_null_literal("-").set_line_delimiter("").build()
    records = (
        KafkaRecordSerializationSchema.builder().set_topic("out").set_key_serialization_schema(values)
        .set_value_serialization_schema(values).build()
    )  # fmt: skip
    made = (
        KafkaSink.builder().set_bootstrap_servers("here:9092").set_record_serializer(records)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p").build()
    )  # fmt: skip
    assert made.all_options == {
        "connector": "kafka", "topic": "out", "value.format": "csv", "value.csv.null-literal": "-",
        "key.format": "csv", "key.fields": "id;name", "key.csv.null-literal": "-",
        "properties.bootstrap.servers": "here:9092", "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": "p",
    }  # fmt: skip


def test_avro_rows_have_the_schemas_types():
    text = """{"type": "record", "name": "r", "fields": [
      {"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]},
      {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
      {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
      {"name": "tags", "type": {"type": "array", "items": "string"}},
      {"name": "counts", "type": {"type": "map", "values": "long"}}]}"""
    for made in (
        AvroRowDeserializationSchema(avro_schema_string=text),
        AvroRowSerializationSchema(avro_schema_string=text),
    ):
        assert [f.type for f in made.type_info.fields] == [
            t.IntType(nullable=False), t.VarCharType(), t.TimestampLtzType(3, nullable=False),
            t.DecimalType(9, 2, nullable=False), t.ArrayType(t.VarCharType(nullable=False), nullable=False),
            t.MapType(t.VarCharType(nullable=False), t.BigIntType(nullable=False), nullable=False),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error", "names"),
    [
        (lambda: KafkaSource.builder().build(), SpecError, "deserializer"),
        (lambda: source().set_partitions({KafkaTopicPartition("a", 0)}), UnsupportedError, "a-0"),
        (lambda: source(3), SpecError, "SimpleStringSchema"),
        (lambda: KafkaSink.builder().build(), SpecError, "record serializer"),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic("x").build(), SpecError, "no value"),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic_selector(len), UnsupportedError, "each record"),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_topic("x")
            .set_key_serialization_schema(SimpleStringSchema())
            .set_value_serialization_schema(ByteArraySchema()).build(),
            UnsupportedError, "names of its fields",
        ),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_topic("x")
            .set_key_serialization_schema(SimpleStringSchema())
            .set_value_serialization_schema(RowFieldExtractorSchema(1)).build(),
            UnsupportedError, "RowFieldExtractorSchema for both",
        ),
        (lambda: JsonRowDeserializationSchema.builder().build(), SpecError, "no type"),
        (lambda: JsonRowDeserializationSchema.builder().json_schema("{}"), UnsupportedError, "JSON schema"),
        (lambda: AvroRowDeserializationSchema("org.example.R"), UnsupportedError, "org.example.R"),
        (lambda: AvroRowSerializationSchema(avro_schema_string='"int"'), SpecError, "record"),
        (lambda: RowFieldExtractorSchema(-1), SpecError, "-1"),
    ],
)  # fmt: skip
def test_what_is_refused(make, error, names):
    with pytest.raises(error, match=names) as raised:
        make()
    assert isinstance(raised.value, PenstockError)


def test_other_words_of_sources():
    values = JsonRowDeserializationSchema.builder().type_info(ROW).fail_on_missing_field().build()
    made = source(values).set_topic_pattern("a.*").set_properties({"bootstrap.servers": "x:1"}).build()
    assert made.all_options["topic-pattern"] == "a.*"
    assert made.all_options["properties.bootstrap.servers"] == "x:1"
    assert made.all_options["json.fail-on-missing-field"] == "true"
    quoted = CsvRowDeserializationSchema.Builder(ROW).set_quote_character("'").build()
    assert quoted.options == {"csv.quote-character": "'"}
    assert JsonRowSerializationSchema.builder().with_type_info(ROW).build().type_info == ROW
    skipping = JsonRowDeserializationSchema.builder().type_info(ROW).ignore_parse_errors().build()
    assert skipping.options == {"json.ignore-parse-errors": "true"}
