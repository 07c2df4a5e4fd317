"""The JSON Schema of a job spec accepts what the dispatcher accepts, and its published text is the code's."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from penstock.errors import SpecError
from penstock.messages.spec_schema import job_spec_schema, text
from penstock_services.dispatcher.spec import spec_of

CASES = [
    {"sql": "SELECT 1"},
    {"python": "x", "entry": "main", "args": ["a"], "files": ["/a"], "parallelism": 4},
    {"job_graph": {}, "sql": None},
    {"sql": "SELECT 1", "config": {"parallelism.default": 2, "user.flag": True}},
    {},
    {"sql": "SELECT 1", "python": "x"},
    {"sql": 5},
    {"sql": "SELECT 1", "paralelism": 1},
    {"sql": "SELECT 1", "parallelism": 0},
    {"sql": "SELECT 1", "parallelism": 40_000},
    {"sql": "SELECT 1", "args": "a"},
    {"sql": "SELECT 1", "config": {"parallelism.default": []}},
    [],
]


@pytest.mark.parametrize("spec", CASES, ids=str)
def test_schema_and_dispatcher_agree(spec):
    try:
        spec_of(spec)
        accepted = True
    except SpecError:
        accepted = False
    validator = jsonschema.Draft202012Validator(job_spec_schema())
    assert validator.is_valid(spec) is accepted


def test_the_published_text_is_the_codes():
    jsonschema.Draft202012Validator.check_schema(job_spec_schema())
    published = Path(__file__).parents[2] / "docs" / "job-spec.schema.json"
    assert published.read_text() == text(), "penstock schema job > docs/job-spec.schema.json"
    assert all("description" in field for field in job_spec_schema()["properties"].values())
