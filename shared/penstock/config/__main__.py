"""Writes the configuration page: ``python -m penstock.config > docs/configuration.md``."""

import sys

from penstock.config import markdown

sys.stdout.write(markdown())
