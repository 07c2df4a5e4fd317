"""``python -m penstock.native`` compiles the kernels for this machine."""

from __future__ import annotations

import sys

from penstock.errors import ExternalError
from penstock.native.library import build


def main() -> int:
    """Build the library and print its path; 1 if that fails."""
    try:
        path = build()
    except ExternalError as err:
        print(err, file=sys.stderr)  # noqa: T201
        return 1
    print(path)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
