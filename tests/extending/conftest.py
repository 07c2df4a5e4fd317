"""``acme``: the package of docs/extending, installed into a folder on the import path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("acme_package", Path(__file__).with_name("acme.py"))
acme_package = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(acme_package)
# Installed while tests are collected, so that test modules can import it; taken out again at the end.
_FOLDER: list[Path] = []


@pytest.fixture(scope="session")
def acme(tmp_path_factory):
    """The folder of the installed package, which is on ``sys.path``."""
    folder = acme_package.install(tmp_path_factory.mktemp("site-packages"))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    acme_package.forget()


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Declare another package's entry points; it is on the path for one test."""

    def declared(name, groups, version="1.0", **modules):
        folder = tmp_path / name
        acme_package.declare(folder, name, version, groups)
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(folder))

    return declared


@pytest.fixture
def journal(acme):
    return importlib.import_module("acme.journal")


@pytest.fixture
def pairs(acme):
    return importlib.import_module("acme.pairs")
