import pytest

from penstock.connectors.registry import get_connector, known_connectors, validate_table
from penstock.errors import ConnectorError
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("a", t.IntType()))


@pytest.mark.parametrize("name", known_connectors())
def test_every_connector_loads_and_describes_itself(name):
    connector = get_connector(name)
    assert connector.name == name
    for doc, default, required in connector.options.values():
        assert doc
        assert default is None or isinstance(default, str)
        assert not (required and default)


@pytest.mark.parametrize(
    ("options", "role", "says"),
    [
        ({"connector": "kafkaa"}, "source", "unknown connector 'kafkaa'"),
        ({"connector": "filesystm"}, "source", "did you mean 'filesystem'"),
        ({}, "source", "names no connector"),
        ({"connector": "print", "print-identifer": "x"}, "sink", "did you mean 'print-identifier'"),
        ({"connector": "print", "standard-error": "maybe"}, "sink", "option 'standard-error'"),
        ({"connector": "print"}, "source", "cannot be a source"),
        ({"connector": "filesystem", "format": "json"}, "source", "option 'path' is missing"),
        ({"connector": "filesystem", "path": "/nowhere/at/all", "format": "json"}, "source", "no file at"),
        ({"connector": "filesystem", "path": "/x"}, "sink", "option 'format' is missing"),
        ({"connector": "filesystem", "path": "/x", "format": "jsn"}, "sink", "did you mean 'json'"),
        ({"connector": "filesystem", "path": "/x", "format": "json", "json.x": "1"}, "sink", "json.x"),
        ({"connector": "filesystem", "path": "/x", "format": "csv", "csv.quote-character": "ab"}, "sink", "one character"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_with_a_remedy(options, role, says):
    with pytest.raises(ConnectorError) as caught:
        validate_table(SCHEMA, options, role=role, where="table 't'")
    assert says in str(caught.value)
    assert caught.value.remedy
