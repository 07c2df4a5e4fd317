"""PyFlink's module tree inside a program of Penstock's: there, and nowhere else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import penstock.api
from penstock.compat import pyflink
from penstock.compat.pyflink.modules import MODULES
from penstock.errors import UnsupportedError
from penstock.jobgraph import module_aliases
from penstock.jobgraph.artifacts import with_classes
from tests.compat import suite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tree() -> Iterator[None]:
    pyflink.install()
    yield
    pyflink.uninstall()


def test_every_module_of_the_map_has_its_names(tree: None) -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__name__ == name
        for exported in getattr(module, "__all__", []):
            assert getattr(module, exported) is not None


def test_the_names_are_penstocks_own(tree: None) -> None:
    from pyflink.common import Types
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.functions import MapFunction

    assert StreamExecutionEnvironment is penstock.api.StreamExecutionEnvironment
    assert (Types, MapFunction) == (penstock.api.Types, penstock.api.MapFunction)


def test_a_name_that_is_not_there_is_refused_by_name(tree: None) -> None:
    from pyflink.datastream.connectors import PulsarSource

    with pytest.raises(UnsupportedError, match="PulsarSource"):
        PulsarSource.builder()
    with pytest.raises(ImportError, match="NoSuchName"):
        from pyflink.common import NoSuchName  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"pyflink\.nothing"):
        importlib.import_module("pyflink.nothing")


def test_it_is_gone_afterwards() -> None:
    pyflink.install()
    importlib.import_module("pyflink.common")
    pyflink.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "pyflink"]


def test_a_process_that_asks_for_nothing_has_none(tmp_path: Path) -> None:
    """An installed package of that name is what a program finds that Penstock does not run, and ours inside."""
    (tmp_path / "pyflink").mkdir()
    (tmp_path / "pyflink" / "__init__.py").write_text("theirs = True")
    code = (
        "import penstock.api, pyflink; assert pyflink.theirs;"
        "from penstock.compat.pyflink import install, uninstall; install();"
        "import pyflink.common; assert pyflink.common.Types; uninstall();"
        "import pyflink; assert pyflink.theirs"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}
    )


def test_a_jobs_slots_get_it_where_the_program_imported_it(tree: None) -> None:
    assert with_classes({}) == {}
    importlib.import_module("pyflink.common")
    [(name, entry)] = with_classes({}).items()
    assert name.startswith(module_aliases.BEFORE)
    assert (entry.module, entry.qualname) == ("penstock.compat.pyflink", "install")


def test_the_page_of_pyflinks_tests_names_their_commit() -> None:
    for package, (page, _, _) in suite.PAGES.items():
        assert suite.COMMIT in page.read_text()
        assert "\n".join(suite.taken_from(package)) in page.read_text()
