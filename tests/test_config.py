import pytest

from penstock import config
from penstock.config.checks import FORMER_NAMES
from penstock.errors import SpecError


@pytest.mark.parametrize(
    ("text", "ms"), [("200 ms", 200), ("10s", 10_000), ("3 h", 10_800_000), ("5", 5), ("1.5 min", 90_000), ("2 d", 172_800_000)]
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert config.parse_duration_ms(text) == ms


@pytest.mark.parametrize(("text", "size"), [("64 mb", 64 * 2**20), ("1g", 2**30), ("17", 17)])
def test_sizes(text: str, size: int) -> None:
    assert config.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.interval", "soon"),
        ("state.backend.memory.per-slot", "lots"),
        ("parallelism.default", "two"),
        ("execution.engine", "flink"),
        ("pipeline.operator-chaining.enabled", "yes"),
    ],
)
def test_a_bad_value_names_its_key(key: str, value: str) -> None:
    with pytest.raises(SpecError) as caught:
        config.OPTIONS[key].read({key: value})
    assert key in caught.value.where
    assert value in caught.value.got
    assert caught.value.expected


def test_defaults_are_what_the_documentation_says() -> None:
    assert config.BUFFER_TIMEOUT_MS.read({}) == 5
    assert config.CHECKPOINT_INTERVAL_MS.read({}) == 10_000
    assert config.WATERMARK_INTERVAL_MS.read({}) == 200


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"parallelism\.defualt") as caught:
        config.check_keys({"parallelism.defualt": "2"})
    assert "parallelism.default" in caught.value.remedy
    with pytest.raises(SpecError, match="paralelism"):
        config.check_keys({"paralelism.default": "2"})  # the family's name is mistyped, too
    with pytest.raises(SpecError, match=r"somebody\.else"):
        config.check_keys({"somebody.else": "1"})  # nothing reads it
    config.check_keys({"python.fn-execution.bundle.size": "1"})
    config.check_keys({"user.threshold": "1", "parallelism.default": "2"})


@pytest.mark.parametrize(("former", "now"), FORMER_NAMES.items())
def test_names_that_flink_gave_before_are_answered_with_those_of_today(former: str, now: str) -> None:
    assert now in config.OPTIONS
    with pytest.raises(SpecError) as caught:
        config.check_keys({former: "x"})
    assert caught.value.remedy == f"the option's name is '{now}'"


def test_keys_are_checked_with_their_values() -> None:
    with pytest.raises(SpecError, match="whole number"):
        config.check_keys({"parallelism.default": "two"})


def test_a_key_that_has_no_meaning_here_is_refused_not_ignored() -> None:
    with pytest.raises(SpecError, match=r"storageDir") as caught:
        config.check_keys({"execution.checkpointing.dir": "s3://elsewhere"})
    assert "execution.checkpointing.dir" in caught.value.where


@pytest.mark.parametrize("value", ["0", "100000", "-1"])
def test_parallelism_has_bounds(value: str) -> None:
    with pytest.raises(SpecError, match="not a parallelism") as caught:
        config.check_keys({"parallelism.default": value})
    assert caught.value.expected == "1 to 32768"


CHECKPOINTING = "execution.checkpointing."
BACKOFF = "restart-strategy.exponential-delay."


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (CHECKPOINTING + "num-retained", "0", "1 or more"),
        (CHECKPOINTING + "timeout", "0", "10 ms or more"),
        (CHECKPOINTING + "timeout", "-5 s", "0 or more"),
        (CHECKPOINTING + "tolerable-failed-checkpoints", "-1", "0 or more"),
        (CHECKPOINTING + "max-concurrent-checkpoints", "0", "1 or more"),
        (CHECKPOINTING + "savepoint-dir", "ftp://x/y", "s3://"),
        (CHECKPOINTING + "savepoint-dir", "", "a folder's name"),
        ("pipeline.max-parallelism", "0", "1 to 32768"),
        ("pipeline.max-parallelism", "-2", "-1"),
        ("pipeline.max-parallelism", "40000", "1 to 32768"),
        (BACKOFF + "backoff-multiplier", "0.1", "1.0 or more"),
        (BACKOFF + "backoff-multiplier", "much", "1.5"),
        (BACKOFF + "backoff-multiplier", "nan", "1.5"),
        (BACKOFF + "jitter-factor", "1.5", "0.0 to 1.0"),
        ("restart-strategy.fixed-delay.attempts", "-1", "0 or more"),
        ("restart-strategy.failure-rate.max-failures-per-interval", "0", "1 or more"),
        ("spark.master", "foo://x", "spark://host:port"),
        ("spark.master", "localhost:7077", "local[n]"),
        ("spark.master", "sc://host:15002", "spark.remote"),
        ("spark.remote", "host:15002", "sc://host:port"),
        ("spark.remote", "local[2]", "sc://host:port"),
        ("table.exec.async-scalar.max-concurrent-operations", "0", "1 or more"),
        ("taskmanager.spark.memory", "lots", "2g"),
        ("taskmanager.spark.memory", "64m", "450m or more"),
        ("taskmanager.numberOfTaskSlots", "0", "1 to 32768"),
        ("rest.port", "70000", "0 to 65535"),
        ("heartbeat.interval", "0", "10 ms or more"),
    ],
)
def test_values_that_make_no_sense_are_refused(key: str, value: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        config.check_keys({key: value})
    assert expected in (caught.value.expected or "")
    assert value in (caught.value.got or "")
    assert caught.value.where == f"configuration key '{key}'"
    assert "leave it out" in (caught.value.remedy or "")


def test_a_negative_duration_is_called_one() -> None:
    with pytest.raises(SpecError, match="a negative duration"):
        config.parse_duration_ms("-5 s")
    with pytest.raises(SpecError, match="a negative size"):
        config.parse_bytes("-1 mb")


@pytest.mark.parametrize("key", sorted(config.OPTIONS))
def test_defaults_are_within_the_bounds(key: str) -> None:
    option = config.OPTIONS[key]
    assert option.least is None or option.default >= option.least
    assert option.most is None or option.default <= option.most


@pytest.mark.parametrize(
    "pair",
    [
        {"execution.checkpointing.savepoint-dir": "s3://bucket/kept"},
        {"execution.checkpointing.savepoint-dir": "mine/kept"},
        {"pipeline.max-parallelism": "-1"},
        {"spark.master": "yarn"},
        {"spark.master": "local[2]"},
        {"spark.master": "local[*]"},
        {"spark.remote": "sc://host:15002/;token=x"},
        {"taskmanager.memory.network.size": "16 mb"},
        {"rest.address": "http://127.0.0.1:8081"},
        {"nats.url": "nats://elsewhere:4222"},
    ],
)
def test_what_jobs_may_say(pair: dict[str, str]) -> None:
    config.check_job(pair)


@pytest.mark.parametrize(
    ("key", "value"), [("heartbeat.interval", "5 s"), ("taskmanager.spark.memory", "3g"), ("rest.port", "1")]
)
def test_options_of_the_cluster_are_no_jobs(key: str, value: str) -> None:
    config.check_cluster({key: value})
    with pytest.raises(SpecError, match=key) as caught:
        config.check_job({key: value})
    assert "penstock up" in (caught.value.remedy or "")
    assert value in (caught.value.got or "")


def test_families_of_the_cluster_are_no_jobs() -> None:
    config.check_cluster({"storage.options.secret_access_key": "hidden", "metrics.flink-names": "true"})
    with pytest.raises(SpecError, match=r"storage\.options\.secret_access_key") as caught:
        config.check_job({"storage.options.secret_access_key": "hidden"})
    assert "penstock up" in (caught.value.remedy or "")
    assert "hidden" not in str(caught.value)
    with pytest.raises(SpecError, match="is the cluster's"):
        config.check_job({"metrics.flink-names": "true"})
    assert config.is_cluster_option("storage.options.region")
    config.check_job({"spark.sql.shuffle.partitions": "4", "user.threshold": "2"})


@pytest.mark.parametrize(
    "key",
    [
        "metrics.reporter.prom.port",
        "metrics.flink-name",
        "storage.option.region",
        "storage.region",
        "nope.key",
        "nope",
    ],
)
def test_what_has_no_effect_is_refused_of_services_and_jobs(key: str) -> None:
    for check in (config.check_cluster, config.check_job):
        with pytest.raises(SpecError, match="unknown configuration key"):
            check({key: "1"})


def test_a_time_zone_is_checked_where_it_is_set() -> None:
    for zone in ("UTC", "Europe/Berlin", "GMT+08:00"):
        config.check_job({"table.local-time-zone": zone})
    with pytest.raises(SpecError, match="unknown time zone") as caught:
        config.check_job({"table.local-time-zone": "Mars/Olympus"})
    with pytest.raises(SpecError, match="unknown time zone"):
        config.check_job({"table.local-time-zone": "GMT+99:00"})
    assert caught.value.got == "'Mars/Olympus'"
    assert "table.local-time-zone" in str(caught.value.where)


def test_mini_batches_of_flinks_programs_are_taken() -> None:
    prefix = "table.exec.mini-batch."
    config.check_job({prefix + "enabled": "true", prefix + "allow-latency": "5 s", prefix + "size": "5000"})
    with pytest.raises(SpecError, match="boolean"):
        config.check_job({prefix + "enabled": "yes"})


def test_values_that_contradict_each_other() -> None:
    with pytest.raises(SpecError, match=r"heartbeat\.interval") as caught:
        config.check_cluster({"heartbeat.interval": "20 s"})
    assert caught.value.expected == "at most 10000 ms"
    backoff = {BACKOFF + "initial-backoff": "2 min"}
    config.check_job(backoff)  # its cluster may say more of the other
    with pytest.raises(SpecError, match="initial-backoff"):
        config.check_job(backoff | {BACKOFF + "max-backoff": "1 min"})


def test_an_option_that_would_have_no_effect_is_refused_by_name() -> None:
    for check in (config.check_cluster, config.check_job):
        with pytest.raises(SpecError, match=r"taskmanager\.memory\.process\.size.*no effect"):
            check({"taskmanager.memory.process.size": "2 gb"})
