"""The one form in which the command line prints errors. Imports little: an error is printed at once."""

from __future__ import annotations

import sys

from penstock.errors import PenstockError


def print_error(err: BaseException) -> None:
    """Print an error to stderr: a PenstockError's own lines, any other error with its type."""
    text = str(err) if isinstance(err, PenstockError) else f"{type(err).__name__}: {err}"
    sys.stderr.write(f"error: {text}\n")
