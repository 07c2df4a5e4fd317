/** A verdict: findings with their cause chain and the next step. */
import type { ReactElement } from "react";
import type { Schemas } from "../api/client";
import { ago, SEVERITY } from "../lib/format";
import { to } from "../lib/router";
import { Icon } from "./icons";
import { Badge } from "./parts";

type Finding = Schemas["Finding"];

/** The address of the page that shows more about a finding. */
export function placeOf(job: string, finding: Finding): string {
  const vertex = finding.subject.vertex;
  switch (finding.page) {
    case "taskmanagers":
      return to("taskmanagers");
    case "vertex":
      return vertex ? to("jobs", job, "graph", vertex) : to("jobs", job);
    case "graph":
      return to("jobs", job);
    default:
      return to("jobs", job, finding.page);
  }
}

export function FindingItem({ job, finding }: { job: string; finding: Finding }): ReactElement {
  const severity = SEVERITY[finding.severity] ?? SEVERITY["info"]!;
  return (
    <li className={`finding ${finding.severity}`}>
      <div className="row">
        <Badge of={severity.tone}>{severity.word}</Badge>
        {finding.since ? <span className="dim small">since {ago(finding.since)}</span> : null}
      </div>
      <div className="title">{finding.title}</div>
      {finding.causes.length > 0 && (
        <ol className="chain" aria-label="Causes">
          {finding.causes.map((cause) => (
            <li key={cause}>{cause}</li>
          ))}
        </ol>
      )}
      <div className="next">
        <b>Next step</b>
        <span className="grow">{finding["next-step"]}</span>
        <a href={placeOf(job, finding)} className="nowrap" aria-label={`Show: ${finding.title}`}>
          Show →
        </a>
      </div>
    </li>
  );
}

/** The mark of a severity; null: all is well. */
export function Mark({ severity }: { severity: string | null }): ReactElement {
  const icon = severity === null ? "check" : severity === "info" ? "info" : "alert";
  return (
    <span className={`dot ${severity ?? ""}`}>
      <Icon name={icon} />
    </span>
  );
}
