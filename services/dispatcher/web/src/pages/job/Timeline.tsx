/** When the job and each of its tasks was in which state. */
import type { ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { clock, moment, span } from "../../lib/format";
import { Card, Loading, Problem } from "../../ui/parts";
import { headOf } from "./Exceptions";

const COLOURS: Record<string, string> = {
  CREATED: "var(--idle)",
  INITIALIZING: "var(--s4)",
  RECONCILING: "var(--s4)",
  SCHEDULED: "var(--idle)",
  DEPLOYING: "var(--s6)",
  RUNNING: "var(--ok)",
  FINISHED: "var(--info)",
  RESTARTING: "var(--pressure)",
  FAILING: "var(--bad)",
  FAILED: "var(--bad)",
  CANCELLING: "var(--pressure)",
  CANCELING: "var(--pressure)",
  CANCELED: "var(--dim)",
};

interface Piece {
  state: string;
  from: number;
  until: number;
}

/** The states in their order, each until the next one. */
export function pieces(timestamps: Record<string, number>, end: number): Piece[] {
  const known = Object.entries(timestamps)
    .filter(([, at]) => at > 0)
    .sort((a, b) => a[1] - b[1]);
  return known.map(([state, from], i) => ({ state, from, until: known[i + 1]?.[1] ?? end })).filter((p) => !["FINISHED", "CANCELED", "FAILED"].includes(p.state));
}

export function TimelineTab({ job }: { job: Schemas["Job"] }): ReactElement {
  const end = job["end-time"] >= 0 ? job["end-time"] : job.now;
  const attempts = useLoaded(`${job.jid}/timeline/${job.attempt}`, () => data(api.GET("/jobs/{job}/exceptions", { params: { path: { job: job.jid } } })));
  const vertices = useLoaded(
    `${job.jid}/times/${job.attempt}`,
    () => Promise.all(job.vertices.map((v) => data(api.GET("/jobs/{job}/vertices/{vertex}/subtasktimes", { params: { path: { job: job.jid, vertex: v.id } } })))),
    job["end-time"] >= 0 ? undefined : 5000,
  );
  if (vertices.error) return <Problem text={vertices.error} />;
  if (!vertices.value) return <Loading />;
  const jobPieces = pieces(job.timestamps, end);
  const failures = (attempts.value?.exceptionHistory.entries ?? []).filter((e) => e.attempt !== null).reverse();
  const all = vertices.value.flatMap((v) => v.subtasks.flatMap((s) => pieces(s.timestamps, end)));
  const from = Math.min(job["start-time"], ...all.map((p) => p.from), ...jobPieces.map((p) => p.from));
  const shown = [...new Set([...jobPieces, ...all].map((p) => p.state))];
  return (
    <div className="stack">
      <Card title="Attempts">
        <ol className="chain">
          <li>Submitted {moment(job["start-time"])}</li>
          {failures.map((f, i) => (
            <li key={i}>
              Attempt {f.attempt} failed {moment(f.timestamp)}: {headOf(f.stacktrace) || f.exceptionName}
            </li>
          ))}
          <li style={{ color: "var(--ink)" }}>
            {job["end-time"] >= 0 ? `${job.state.toLowerCase()} ${moment(end)}` : `Attempt ${job.attempt} is ${job.state.toLowerCase()}`}
            {job["restored-checkpoint"] ? `, restored from checkpoint ${job["restored-checkpoint"]}` : ""}
          </li>
        </ol>
      </Card>
      <Card
        title="States of the current attempt"
        end={
          <div className="legend">
            {shown.map((state) => (
              <span key={state}>
                <i style={{ background: COLOURS[state] }} /> {state.toLowerCase()}
              </span>
            ))}
          </div>
        }
      >
        <div className="timeline">
          <Lane name="the job" pieces={jobPieces} from={from} until={end} />
          {vertices.value.flatMap((v) => v.subtasks.slice(0, 32).map((s) => <Lane key={`${v.id}${s.subtask}`} name={`${v.name} (${s.subtask})`} pieces={pieces(s.timestamps, s.timestamps["FINISHED"] || s.timestamps["CANCELED"] || s.timestamps["FAILED"] || end)} from={from} until={end} />))}
        </div>
        <div className="row dim small" style={{ justifyContent: "space-between", marginTop: 8 }}>
          <span>{clock(from)}</span>
          <span>{span(end - from)}</span>
          <span>{clock(end)}</span>
        </div>
      </Card>
    </div>
  );
}

function Lane({ name, pieces: shown, from, until }: { name: string; pieces: Piece[]; from: number; until: number }): ReactElement {
  const whole = Math.max(1, until - from);
  return (
    <div className="lane">
      <span className="clip small" title={name}>
        {name}
      </span>
      <span className="track" role="img" aria-label={shown.map((p) => `${p.state.toLowerCase()} for ${span(p.until - p.from)}`).join(", ")}>
        {shown.map((p) => (
          <i key={`${p.state}${p.from}`} title={`${p.state.toLowerCase()}: ${span(p.until - p.from)}`} style={{ left: `${(100 * (p.from - from)) / whole}%`, width: `${(100 * (p.until - p.from)) / whole}%`, background: COLOURS[p.state] ?? "var(--dim)" }} />
        ))}
      </span>
    </div>
  );
}
