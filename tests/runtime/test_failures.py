"""Whose exception it was that failed a task."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime import failures
from penstock.types import Schema


def ours() -> Any:
    Schema.of(("a", None)).index("b")


def users() -> Any:
    return {}["a"]


def a_librarys() -> Any:
    return json.loads("{")


@pytest.mark.parametrize(
    ("raised", "kind"), [(ours, "InternalError"), (users, "FunctionError"), (a_librarys, "FunctionError")]
)
def test_what_the_jobs_code_raised_is_told_as_its_own(raised: Callable[[], Any], kind: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        raised()
    assert failures.error_info(caught.value, task="t").error["type"] == kind
