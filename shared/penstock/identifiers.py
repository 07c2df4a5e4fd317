"""Ids from outside, checked before they become a part of a subject or of a path.

The one place that knows what an id may look like: ``bus/subjects.py`` and ``messages/layout.py``
ask it, so that no id reaches NATS or the object store without having been here.
"""

from __future__ import annotations

import functools
import re

from penstock.errors import SpecError

#: Of a job, and of a request (trigger id).
MAX_ID = 64
#: Of a token of a subject, such as a task manager's id: a control line of NATS has 4,096 bytes.
MAX_TOKEN = 255
_ALLOWED = re.compile(r"[A-Za-z0-9_\-]+", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SHOWN = 80


@functools.lru_cache(maxsize=4096)
def checked(text: str, what: str, limit: int = MAX_ID) -> str:
    """``text`` when it can be an id; SpecError otherwise."""
    if len(text) > limit or not _ALLOWED.fullmatch(text):
        shown = repr(text[:_SHOWN]) + (f"… ({len(text)} characters)" if len(text) > _SHOWN else "")
        raise SpecError(
            f"not a {what}",
            expected=f"1 to {limit} letters, digits, '-' and '_'",
            got=shown,
            remedy=f"check the {what}",
        )
    return text


def checked_job_id(text: str) -> str:
    """``text`` when it can be the id of a job that exists; SpecError otherwise."""
    return checked(text, "job id")


def new_job_id(text: str) -> str:
    """``text`` when a new job may have it as its id; SpecError otherwise.

    Flink's clients read ids as 32 hexadecimal digits: with one other id in a list, none of its jobs can be read.
    """
    if not _HEX.fullmatch(text):
        shown = repr(text[:_SHOWN]) + (f"… ({len(text)} characters)" if len(text) > _SHOWN else "")
        raise SpecError(
            "not an id of a new job",
            expected="32 hexadecimal digits in small letters",
            got=shown,
            remedy="leave it out, or make one of a name of your own: printf my-job | md5sum",
        )
    return text
