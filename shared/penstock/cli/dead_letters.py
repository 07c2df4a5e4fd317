"""``penstock dead-letters``: lists the records that ``on-error`` = dead-letter set aside, and sends them again."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.api.client import ClusterClient
from penstock.cli.showing import find_job, print_table, when
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator


def show_dead_letters(url: str, start: str, format_: str, number: int | None, *, raw: bool) -> None:
    """Print the dead letters of the job whose id begins with ``start``; or one of them, ``number`` (from 1), or with ``raw``
    its record's bytes alone. SpecError if there is no such letter, or it has no bytes."""
    with ClusterClient(url, patience_s=2) as client:
        letters = list(_letters(client, find_job(client, start)))
    if number is None:
        _list(letters, format_)
        return
    if not 1 <= number <= len(letters):
        raise SpecError(
            "there is no such dead letter", expected=f"a number from 1 to {len(letters)}", got=str(number)
        )
    letter = letters[number - 1]
    if not raw:
        print(json.dumps(letter, indent=2, ensure_ascii=False))
        return
    if letter.get("bytes") is None:
        raise SpecError("the dead letter has no bytes", expected="a record of a source", got=letter["where"])
    sys.stdout.buffer.write(base64.b64decode(letter["bytes"]))
    sys.stdout.buffer.flush()


def replay_dead_letters(url: str, start: str, into: str | None, format_: str) -> None:
    """Send the dead letters of the job whose id begins with ``start`` again, into itself or the job ``into``; print what
    becomes of them."""
    with ClusterClient(url, patience_s=2) as client:
        job_id = find_job(client, start)
        done = client.replay_dead_letters(job_id, "" if into is None else find_job(client, into))
    if format_ == "json":
        print(json.dumps(done, indent=2, ensure_ascii=False))
        return
    print(f"{done['asked']} dead letters are sent again by job {done['into']}")
    if done["already"]:
        print(f"{done['already']} were given to a job before")
    if done["unconfirmed"]:
        print(f"{done['unconfirmed']} wait for their checkpoint to complete: ask again later")
    for kept in done["kept"]:
        print(f"{kept['letters']} of '{kept['operator']}' stay: {kept['reason']}")


def _letters(client: ClusterClient, job_id: str) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = client.dead_letters(job_id, after)
        yield from page["dead-letters"]
        if not page["more"]:
            return
        after = page["next"]


def _list(letters: list[dict[str, Any]], format_: str) -> None:
    if format_ == "json":
        print(json.dumps(letters, indent=2, ensure_ascii=False))
        return
    if not letters:
        print("no dead letters")
        return
    rows = [
        [i, when(x["time_ms"]), x["state"], x["operator"], x["where"], x["error"].splitlines()[0]]
        for i, x in enumerate(letters, 1)
    ]
    print_table(["number", "time", "state", "operator", "where", "error"], rows)
