"""PyFlink's names beside ours, where PyFlink's wheel is at hand: ``PENSTOCK_PYFLINK`` names the folder it is unpacked in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.compat.surface import PAGE, Name, compared, difference, page

FOLDER = os.environ.get("PENSTOCK_PYFLINK")
with_the_wheel = pytest.mark.skipif(
    FOLDER is None, reason="PENSTOCK_PYFLINK names no folder with PyFlink's wheel"
)


@with_the_wheel
def test_each_name_that_is_not_there_has_its_reason() -> None:
    assert FOLDER is not None
    assert [name for name, _, why in compared(Path(FOLDER)).rows if why is None] == []


@with_the_wheel
def test_the_page_says_what_the_wheel_says() -> None:
    assert FOLDER is not None
    assert PAGE.read_text() == page(Path(FOLDER)), "run: python -m tests.compat.surface FOLDER"


def test_names_and_parameters_are_compared_in_their_order() -> None:
    module = "pyflink.datastream.data_stream"
    assert difference(Name(module, "DataStream.map", ("func", "output_type"))) is None
    assert difference(Name(module, "DataStream.map", ("output_type", "func"))) is not None
    assert difference(Name(module, "DataStream.nothing")) == "absent"
    assert difference(Name("pyflink.nothing", "Nothing")) == "absent"
