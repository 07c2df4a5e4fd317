"""What the template of slots has imported before the first slot is forked."""

import subprocess
import sys

# A process of its own: this one has imported nearly everything.
_SCRIPT = """
import sys
from penstock.runtime.forking import modules_of
from penstock.runtime.template import preload
preload()
had = set(sys.modules)
for package in ("penstock.operators", "penstock.state", "penstock.columnar", "penstock.snapshots"):
    missing = sorted(set(modules_of(package)) - had)
    assert not missing, missing
import threading
assert threading.active_count() == 1, threading.enumerate()
"""


def test_slots_share_the_modules_of_operators_and_state() -> None:
    """Each slot would import 118 modules for itself otherwise, at the start of every job."""
    done = subprocess.run([sys.executable, "-P", "-c", _SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
