"""Docstrings of the code are plain text with a few roles (``:class:`X```): as Markdown for the API pages."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
_LITERAL = re.compile(r"::\n\n(?= )")


class Roles(griffe.Extension):
    """Rewrites the roles, and ``::`` before an indented example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _LITERAL.sub(":\n\n", text)
