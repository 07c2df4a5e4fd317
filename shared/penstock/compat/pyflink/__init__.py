"""PyFlink's module tree, inside a program that Penstock runs (docs/pyflink.md).

``penstock run job.py`` calls ``install``; so does a slot of a job whose program has imported ``pyflink``. A
program that is started by ``python`` itself must run ``from penstock.compat.pyflink import install;
install()`` first.
"""

from __future__ import annotations

from penstock.compat.pyflink.modules import MODULES
from penstock.jobgraph import module_aliases

_ALIASES = module_aliases.AliasedModules("pyflink", MODULES, ("penstock.compat.pyflink", "install"))


def install() -> None:
    """Let ``import pyflink`` find Penstock's names in this process from now on, even if PyFlink is
    installed."""
    module_aliases.install(_ALIASES)


def uninstall() -> None:
    """Let ``import pyflink`` find the installed package again."""
    module_aliases.uninstall("pyflink")
