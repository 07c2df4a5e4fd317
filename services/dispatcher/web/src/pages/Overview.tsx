/** The first page: the verdict about the cluster. */
import type { ReactElement } from "react";
import type { Schemas } from "../api/client";
import { useTopic } from "../api/live";
import { moment, span } from "../lib/format";
import { to } from "../lib/router";
import { Card, Empty, Loading, State, Tile } from "../ui/parts";
import { FindingItem, Mark } from "../ui/verdict";

type Verdict = Schemas["Verdict"];

export function OverviewPage(): ReactElement {
  const { value } = useTopic("overview");
  if (!value) return <Loading />;
  const { overview, jobs, why } = value;
  const trouble = why.filter((v) => v.severity === "error" || v.severity === "warning");
  const notes = why.filter((v) => v.severity === "info" && v.findings.length > 0);
  const well = why.filter((v) => v.severity === null || v.severity === "info");
  const ended = jobs.filter((job) => job["end-time"] >= 0 && !job.interactive).slice(0, 6);
  const used = overview["slots-total"] - overview["slots-available"];
  return (
    <div className="stack">
      <div className="page-head" style={{ marginBottom: 0 }}>
        <h1>Overview</h1>
        <div className="actions">
          <a className="button main" href={to("submit")}>
            New job
          </a>
        </div>
      </div>
      <Card label="Verdict" flush>
        <div className="verdict-line">
          <Mark severity={trouble[0]?.severity ?? null} />
          <div className="grow">
            <h2>{headline(trouble, overview["jobs-running"])}</h2>
            <p className="dim">{subline(value)}</p>
          </div>
        </div>
      </Card>
      <div className="tiles">
        <Tile what="Jobs running" value={overview["jobs-running"]} href={to("jobs")} note={`${overview["jobs-finished"]} finished`} />
        <Tile what="Jobs failed" value={overview["jobs-failed"]} href={to("jobs")} note={`${overview["jobs-cancelled"]} cancelled`} />
        <Tile what="Slots in use" value={<>{used} <small>of {overview["slots-total"]}</small></>} href={to("taskmanagers")} note={`${overview["slots-available"]} free`} />
        <Tile what="Task managers" value={overview.taskmanagers} href={to("taskmanagers")} note="processes that run tasks" />
      </div>
      {trouble.map((verdict) => (
        <JobFindings key={verdict.jid} verdict={verdict} />
      ))}
      {well.length > 0 && (
        <Card title="Jobs that run well" flush>
          <div className="scroll">
            <table className="list">
              <tbody>
                {well.map((verdict) => (
                  <tr key={verdict.jid}>
                    <td style={{ width: 110 }}>
                      <State of={verdict.state} />
                    </td>
                    <td>
                      <a href={to("jobs", verdict.jid)}>{verdict.name}</a>
                      <div className="dim small">{verdict.severity === null ? verdict.summary : verdict.findings[0]?.title}</div>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      {notes.length === 0 && why.length === 0 && (
        <Card>
          <Empty title="No job runs">
            A job is a query or a program that reads, computes and writes without end, or until its input ends. <a href={to("submit")}>Submit one</a>.
          </Empty>
        </Card>
      )}
      {ended.length > 0 && (
        <Card title="Ended last" end={<a href={to("jobs")}>All jobs</a>} flush>
          <div className="scroll">
            <table className="list">
              <tbody>
                {ended.map((job) => (
                  <tr key={job.jid}>
                    <td style={{ width: 110 }}>
                      <State of={job.state} />
                    </td>
                    <td>
                      <a href={to("jobs", job.jid)}>{job.name}</a>
                    </td>
                    <td className="n dim nowrap">{span(job.duration)}</td>
                    <td className="n dim nowrap">{moment(job["end-time"])}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
    </div>
  );
}

function headline(trouble: Verdict[], running: number): string {
  const first = trouble[0];
  if (!first) return running ? "All jobs run well." : "Nothing runs, and nothing is wrong.";
  if (trouble.length === 1) return `“${first.name}” needs a look: ${first.summary}`;
  return `${trouble.length} jobs need a look. First “${first.name}”: ${first.summary}`;
}

function subline({ overview, jobs }: Schemas["LiveOverview"]): string {
  const waiting = jobs.filter((job) => job.state === "CREATED" || job.state === "INITIALIZING").length;
  const free = overview["slots-available"];
  const parts = [`${overview["jobs-running"]} ${overview["jobs-running"] === 1 ? "job runs" : "jobs run"}`];
  if (waiting) parts.push(`${waiting} start or wait for slots`);
  parts.push(free ? `${free} ${free === 1 ? "slot is" : "slots are"} free for more` : "no slot is free: a new job would wait");
  return `${parts.join(", ")}.`;
}

function JobFindings({ verdict }: { verdict: Verdict }): ReactElement {
  return (
    <Card title={<a href={to("jobs", verdict.jid)}>{verdict.name}</a>} end={<State of={verdict.state} />} flush>
      <ul>
        {verdict.findings.slice(0, 3).map((finding, i) => (
          <FindingItem key={`${finding.code}${i}`} job={verdict.jid} finding={finding} />
        ))}
      </ul>
      {verdict.findings.length > 3 && (
        <div className="body" style={{ padding: "8px 16px" }}>
          <a href={to("jobs", verdict.jid)}>{verdict.findings.length - 3} more</a>
        </div>
      )}
    </Card>
  );
}
