"""Which files are the user's: by where they lie, in every way that Penstock can be installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from penstock.installed import OURS, _is_installed, is_installed

STDLIB = "/usr/lib/python3.11"


@pytest.mark.parametrize(
    ("file", "installed"),
    [
        ("/srv/job/main.py", False),
        ("/srv/job/shop/models.py", False),
        ("/usr/lib/python3.11/json/__init__.py", True),
        ("/usr/lib/python3.11x/mine.py", False),  # beside a library's folder, not in it
        ("/home/me/.local/lib/python3.11/site-packages/numpy/__init__.py", True),
        ("/opt/venv/lib/python3.11/site-packages/msgspec/__init__.py", True),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", True),
        ("/srv/penstock/shared/penstock/api/datastream.py", True),
        ("/srv/penstock/shared/penstocks/mine.py", False),
        ("/srv/penstock/examples/main.py", False),  # the user's files beside an editable Penstock
        ("<string>", False),
        ("<stdin>", False),
        ("<frozen importlib._bootstrap>", True),
    ],
)
def test_the_place_decides(file, installed):
    assert _is_installed(file, (STDLIB,), "/srv/penstock/shared/penstock") is installed


def test_a_zipped_penstock_is_installed_and_its_neighbours_are_not():
    assert _is_installed("/opt/penstock.zip/penstock/api/udf.py", (), "/opt/penstock.zip/penstock")
    assert not _is_installed("/opt/mine.zip/shop.py", (), "/opt/penstock.zip/penstock")


def test_what_pip_put_into_a_folder_is_told_from_the_users_files_there(tmp_path):
    record = tmp_path / "lib-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("lib/__init__.py,sha256=x,1\nlib/deep/more.py,,\n")
    for name, installed in (("lib/__init__.py", True), ("lib/deep/more.py", True), ("mine.py", False)):
        assert _is_installed(str(tmp_path / name), (), "/x") is installed


def test_this_interpreters_own_modules_are_installed():
    for module in (json, numpy, pytest, sys.modules["penstock.installed"]):
        assert is_installed(module.__file__)
    assert not is_installed(__file__)


def test_functions_are_sent_when_the_packages_lie_on_pythonpath(tmp_path):
    """The libraries and Penstock outside of the interpreter's ``purelib``, under another name."""
    libraries = tmp_path / "libraries"
    libraries.symlink_to(Path(numpy.__file__).parents[1])
    program = (
        "from penstock.jobgraph.artifacts import make_artifact, _is_users\n"
        "import sys, numpy, pyarrow\n"
        "assert len(make_artifact(lambda x: numpy.sqrt(x), 'test').data) < 2000\n"
        "print([n for n, m in sys.modules.items() if n != '__main__' and _is_users(m)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": f"{libraries}:{Path(OURS).parent}", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
