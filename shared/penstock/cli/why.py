"""``penstock why``: the verdict about a job, or about all: what is wrong, why, and what to do."""

from __future__ import annotations

import json
from typing import Any

from penstock.api.client import ClusterClient
from penstock.cli.showing import find_job, when

#: Severity → the mark before a finding.
_MARKS = {"error": "FAIL", "warning": "warn", "info": "note"}
#: Exit code if something is wrong with the job.
SOMETHING_WRONG = 3


def lines_of(verdict: dict[str, Any]) -> list[str]:
    """The lines about one job, as ``GET /jobs/{id}/why`` describes it."""
    lines = [f"{verdict['name']}  {verdict['jid']}  {verdict['state']}"]
    if not verdict["findings"]:
        return [*lines, f"  ok    {verdict['summary']}"]
    for finding in verdict["findings"]:
        since = f"  (since {when(finding['since'])})" if finding["since"] else ""
        lines.append(f"  {_MARKS[finding['severity']]}  {finding['title']}{since}")
        lines += [f"        because: {cause}" for cause in finding["causes"]]
        lines.append(f"        do:      {finding['next-step']}")
    return lines


def show_why(url: str, start: str | None, format_: str) -> int:
    """Print the verdict about one job, or about all that run or failed lately; return the exit code."""
    with ClusterClient(url, patience_s=2) as client:
        verdicts = client.verdicts() if start is None else [client.verdict(find_job(client, start))]
    if format_ == "json":
        print(json.dumps(verdicts if start is None else verdicts[0], indent=2))
    elif not verdicts:
        print("no job runs, and none has failed within a day")
    else:
        print("\n".join(line for verdict in verdicts for line in lines_of(verdict)))
    return SOMETHING_WRONG if any(v["severity"] in ("error", "warning") for v in verdicts) else 0
