import pytest

from penstock.errors import SpecError
from penstock_services.common.configuration import flatten, parse_arguments


def test_flatten():
    tree = {"nats": {"url": "u"}, "rest.port": 8081, "a": {"b": True, "c": None, "d": [1, 2]}}
    assert flatten(tree) == {"nats.url": "u", "rest.port": "8081", "a.b": "true", "a.d": "1,2"}


def test_later_ones_win(tmp_path):
    file = tmp_path / "conf.yaml"
    file.write_text("nats.url: from-file\nrest:\n  port: 1\n")
    assert parse_arguments("x", ["-Drest.port=2", "-D", "cluster.id=a=b"], {"PENSTOCK_CONF": str(file)}) == {
        "nats.url": "from-file",
        "rest.port": "2",
        "cluster.id": "a=b",
    }
    other = tmp_path / "other.yaml"
    other.write_text("")
    assert parse_arguments("x", ["--config", str(other)], {"PENSTOCK_CONF": str(file)}) == {}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-D", "nothing"], "malformed -D"),
        (["-Dnats.ulr=x"], "unknown configuration key 'nats.ulr'"),
        (["--config", "/not/there.yaml"], "cannot read the configuration file"),
    ],
)
def test_bad_arguments(argv, message):
    with pytest.raises(SpecError, match=message):
        parse_arguments("x", argv, {})


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "a: [1\n"])
def test_bad_files(tmp_path, text):
    file = tmp_path / "conf.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as err:
        parse_arguments("x", ["--config", str(file)], {})
    assert err.value.where == str(file)
