"""The built wheel: what is in it, and a cluster started from it beside a user's own package named ``services``."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
PROGRAM = """
from penstock.api import StreamExecutionEnvironment, Types
from services.pricing import gross

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([100, 200], Types.LONG()).map(gross, Types.LONG()).print()
env.execute("prices")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``pip`` builds it from a source distribution: the sdist first, the wheel out of it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [sdist] = folder.glob("*.tar.gz")
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sdist))
    [found] = folder.glob("*.whl")
    return found


def test_the_wheel_holds_two_packages_with_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"penstock", "penstock_services"}
    assert "penstock/py.typed" in names
    assert "penstock_services/dispatcher/static/index.html" in names
    assert not [name for name in names if name.startswith("penstock_services/dispatcher/web/")]
    in_tree = {str(p.relative_to(ROOT / "shared")) for p in (ROOT / "shared/penstock").rglob("*.py")}
    in_tree |= {f"penstock_{p.relative_to(ROOT)}" for p in (ROOT / "services").rglob("*.py")}
    assert in_tree == {name for name in names if name.endswith(".py")}


def test_a_cluster_starts_beside_a_package_named_services(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    # The dependencies are this environment's. A .pth file adds the folder without its own .pth
    # files, so the checkout that is installed there stays out of sight.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    package = site / "services"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "pricing.py").write_text("def gross(net):\n    return net * 119 // 100\n")
    _pip("--python", str(python), "install", "--no-deps", "--no-index", "--ignore-installed", str(wheel))
    where = "import penstock, penstock_services as s; print(penstock.__file__, s.__file__)"
    found = subprocess.run([python, "-P", "-c", where], check=True, capture_output=True, text=True)
    assert all(Path(file).is_relative_to(site) for file in found.stdout.split())

    program = tmp_path / "prices.py"
    program.write_text(PROGRAM)
    command = [environment / "bin" / "penstock", "run", program]
    # The servers' binaries, too, are those of this environment.
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    run_in = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=run_in)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["119", "238"]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
