"""``python -m penstock.sandbox FD PROGRAM ARGUMENT …``: enters the sandbox whose JSON the descriptor holds, and becomes
the program. For programs that a task manager starts, rather than forks: Spark and its drivers."""

from __future__ import annotations

import os
import sys

import msgspec

from penstock.errors import PenstockError
from penstock.messages.sandbox import Sandbox
from penstock.sandbox.enter import enter


def main(arguments: list[str]) -> None:
    """Does not return, unless the sandbox cannot be entered: then the process ends with its error."""
    with os.fdopen(int(arguments[0]), "rb") as file:
        sandbox = msgspec.json.decode(file.read(), type=Sandbox)
    try:
        enter(sandbox)
    except PenstockError as err:
        sys.exit(str(err))
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
