/** One job: its verdict, and a tab for each kind of facts. */
import { lazy, Suspense, useState, type ReactElement } from "react";
import type { Schemas } from "../api/client";
import { useTopic } from "../api/live";
import { moment, span } from "../lib/format";
import { to } from "../lib/router";
import { JobActions } from "../parts/JobActions";
import { Card, Loading, Problem, State, Tabs } from "../ui/parts";
import { FindingItem, Mark } from "../ui/verdict";
import { ConfigurationTab, PlanTab } from "./job/Configuration";
import { DeadLettersTab } from "./job/DeadLetters";
import { ExceptionsTab } from "./job/Exceptions";
import { GraphTab } from "./job/GraphTab";
import { LogsTab } from "./job/Logs";
import { SparkTab } from "./job/Spark";
import { TimelineTab } from "./job/Timeline";

const CheckpointsTab = lazy(() => import("./job/Checkpoints"));

export function JobPage({ id, tab, rest }: { id: string; tab: string; rest: string[] }): ReactElement {
  const { value, errors } = useTopic(`job:${id}` as const);
  if (errors) {
    return (
      <>
        <div className="crumb">
          <a href={to("jobs")}>Jobs</a>
        </div>
        <Problem text={errors.join("\n")} />
      </>
    );
  }
  if (!value) return <Loading />;
  const { job } = value;
  const counts = value.checkpoints.counts;
  const items = [
    { key: "graph", text: "Graph" },
    { key: "checkpoints", text: "Checkpoints", ...(counts.failed ? { count: counts.failed, bad: true } : {}) },
    { key: "exceptions", text: "Exceptions" },
    { key: "timeline", text: "Timeline" },
    { key: "logs", text: "Logs" },
    { key: "dead-letters", text: "Dead letters" },
    { key: "plan", text: "Plan" },
    { key: "configuration", text: "Configuration" },
    ...(job.spark ? [{ key: "spark", text: "Spark" }] : []),
  ].map((item) => ({ ...item, href: item.key === "graph" ? to("jobs", id) : to("jobs", id, item.key) }));
  return (
    <>
      <div className="page-head">
        <div className="grow">
          <div className="crumb">
            <a href={to("jobs")}>Jobs</a>
          </div>
          <div className="row">
            <h1>{job.name}</h1>
            <State of={job.state} />
          </div>
          <div className="dim small" style={{ marginTop: 3 }}>
            {job["end-time"] >= 0 ? `Ran for ${span(job.duration)}, until ${moment(job["end-time"])}` : `Started ${moment(job["start-time"])}, ${span(job.duration)} ago`}
            {job.attempt > 1 ? ` · attempt ${job.attempt}` : ""}
            {job.phase ? ` · ${job.phase}` : ""} · <code>{job.jid}</code>
          </div>
        </div>
        <div className="actions">
          <JobActions job={job} checkpoints={value.checkpoints} />
        </div>
      </div>
      <VerdictCard verdict={value.why} />
      <Tabs label="About the job" items={items} current={tab === "edges" ? "graph" : tab} />
      <Suspense fallback={<Loading />}>
        <Tab live={value} tab={tab} rest={rest} />
      </Suspense>
    </>
  );
}

function VerdictCard({ verdict }: { verdict: Schemas["Verdict"] }): ReactElement {
  const serious = verdict.severity === "error" || verdict.severity === "warning";
  const [open, setOpen] = useState(false);
  const many = verdict.findings.length;
  const shown = open ? verdict.findings : serious ? verdict.findings.slice(0, 1) : [];
  return (
    <div style={{ marginBottom: 16 }}>
      <Card flush label="Verdict">
        <div className="verdict-line" style={{ padding: "11px 16px" }}>
          <Mark severity={verdict.severity} />
          <div className="grow" style={{ fontWeight: 600 }}>
            {serious ? (many === 1 ? "One thing is worth your time." : `${many} things are worth your time.`) : verdict.summary}
          </div>
          {many > (serious ? 1 : 0) && (
            <button type="button" className="button quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
              {open ? "Show less" : serious ? `${many - 1} more` : "Why?"}
            </button>
          )}
        </div>
        {shown.length > 0 && (
          <ul style={{ borderTop: "1px solid var(--line)" }}>
            {shown.map((finding, i) => (
              <FindingItem key={`${finding.code}${i}`} job={verdict.jid} finding={finding} />
            ))}
          </ul>
        )}
      </Card>
    </div>
  );
}

function Tab({ live, tab, rest }: { live: Schemas["LiveJob"]; tab: string; rest: string[] }): ReactElement {
  const { job } = live;
  switch (tab) {
    case "checkpoints":
      return <CheckpointsTab job={job} checkpoints={live.checkpoints} chosen={rest[0]} />;
    case "exceptions":
      return <ExceptionsTab job={job} />;
    case "timeline":
      return <TimelineTab job={job} />;
    case "logs":
      return <LogsTab job={job} />;
    case "dead-letters":
      return <DeadLettersTab job={job} />;
    case "plan":
      return <PlanTab job={job} />;
    case "configuration":
      return <ConfigurationTab job={job} />;
    case "spark":
      return <SparkTab job={job} />;
    default:
      return <GraphTab live={live} vertex={tab === "edges" ? undefined : rest[0]} edge={tab === "edges" ? rest[0] : undefined} part={rest[1] ?? "subtasks"} />;
  }
}
