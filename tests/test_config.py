import pytest

from penstock import config
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
        ("taskmanager.memory.process.size", "lots"),
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


def test_unknown_keys_of_our_families_are_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"parallelism\.defualt") as caught:
        config.check_keys({"parallelism.defualt": "2"})
    assert "parallelism.default" in caught.value.remedy
    with pytest.raises(SpecError, match="paralelism"):
        config.check_keys({"paralelism.default": "2"})  # the family's name is mistyped, too
    config.check_keys({"somebody.else": "1"})
    config.check_keys({"user.threshold": "1", "parallelism.default": "2"})


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
