/** Everything about one vertex, beside the graph. */
import { useEffect, useRef, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { bytes, compact, count, span, watermark } from "../../lib/format";
import { go, to } from "../../lib/router";
import { FlamePart } from "../../parts/Flame";
import { LogPart } from "../../parts/LogViewer";
import { MetricsPart } from "../../parts/Metrics";
import { StatePart } from "../../parts/StateSize";
import { Icon } from "../../ui/icons";
import { BusyLegend, BusyMeter, Empty, Loading, Problem, State, Tabs } from "../../ui/parts";
import { FindingItem } from "../../ui/verdict";

interface Operator {
  uid: string;
  name: string;
  kind: string;
}

interface Props {
  job: Schemas["Job"];
  vertex: Schemas["JobVertex"];
  why: Schemas["Verdict"];
  part: string;
}

const PARTS = [
  ["subtasks", "Subtasks"],
  ["metrics", "Metrics"],
  ["watermarks", "Watermarks"],
  ["state", "State"],
  ["flame", "Flame graph"],
  ["logs", "Logs"],
] as const;

export function VertexDrawer({ job, vertex, why, part }: Props): ReactElement {
  const panel = useRef<HTMLElement>(null);
  const close = () => go("jobs", job.jid);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus();
    return () => before?.focus?.();
  }, []);
  const findings = why.findings.filter((f) => f.subject.vertex === vertex.id);
  return (
    <aside ref={panel} className="drawer" tabIndex={-1} role="dialog" aria-label={`Vertex ${vertex.name}`} onKeyDown={(event) => event.key === "Escape" && close()}>
      <header>
        <div className="row" style={{ flexWrap: "nowrap", alignItems: "flex-start" }}>
          <div className="grow">
            <h2 style={{ overflowWrap: "anywhere" }}>{vertex.name}</h2>
            <div className="row small dim" style={{ marginTop: 4 }}>
              <State of={vertex.status} />
              <span>
                {vertex.parallelism} {vertex.parallelism === 1 ? "subtask" : "subtasks"}
              </span>
              <span className="num">in {compact(vertex.metrics["read-records-per-second"])}/s</span>
              <span className="num">out {compact(vertex.metrics["write-records-per-second"])}/s</span>
            </div>
          </div>
          <button type="button" className="button quiet icon" onClick={close} aria-label="Close">
            <Icon name="close" />
          </button>
        </div>
        <Tabs label="About the vertex" current={part} items={PARTS.map(([key, text]) => ({ key, text, href: to("jobs", job.jid, "graph", vertex.id, key) }))} />
      </header>
      <div className="body" tabIndex={0} role="region" aria-label="Details">
        {findings.length > 0 && part === "subtasks" && (
          <ul className="card" style={{ marginBottom: 14, overflow: "hidden" }}>
            {findings.map((finding, i) => (
              <FindingItem key={`${finding.code}${i}`} job={job.jid} finding={finding} />
            ))}
          </ul>
        )}
        <Part job={job} vertex={vertex} part={part} />
      </div>
    </aside>
  );
}

function Part({ job, vertex, part }: { job: Schemas["Job"]; vertex: Schemas["JobVertex"]; part: string }): ReactElement {
  switch (part) {
    case "metrics":
      return <MetricsPart job={job.jid} vertex={vertex} />;
    case "watermarks":
      return <Watermarks job={job} vertex={vertex} />;
    case "state":
      return <StatePart job={job.jid} vertex={vertex} />;
    case "flame":
      return <FlamePart job={job.jid} vertex={vertex} />;
    case "logs":
      return <LogPart job={job.jid} vertex={vertex} />;
    default:
      return <Subtasks job={job} vertex={vertex} />;
  }
}

function useVertex(job: string, vertex: string) {
  return useLoaded(`${job}/${vertex}`, () => data(api.GET("/jobs/{job}/vertices/{vertex}", { params: { path: { job, vertex } } })), 2000);
}

function Subtasks({ job, vertex }: { job: Schemas["Job"]; vertex: Schemas["JobVertex"] }): ReactElement {
  const { value, error } = useVertex(job.jid, vertex.id);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const most = Math.max(1, ...value.subtasks.map((s) => s.metrics["read-records-per-second"] || s.metrics["write-records-per-second"]));
  return (
    <div className="stack">
      <BusyLegend />
      <div className="scroll card">
        <table className="list">
          <thead>
            <tr>
              <th>Subtask</th>
              <th>State</th>
              <th style={{ minWidth: 90 }}>Busy</th>
              <th style={{ minWidth: 110 }}>Share of records</th>
              <th className="n">In /s</th>
              <th className="n">Out /s</th>
              <th className="n">In</th>
              <th className="n">Out</th>
              <th className="n">Bytes in</th>
              <th className="n">Attempt</th>
              <th>Task manager</th>
            </tr>
          </thead>
          <tbody>
            {value.subtasks.map((s) => {
              const rate = s.metrics["read-records-per-second"] || s.metrics["write-records-per-second"];
              return (
                <tr key={s.subtask}>
                  <td>{s.subtask}</td>
                  <td>
                    <State of={s.status} />
                  </td>
                  <td>
                    <BusyMeter busy={s.metrics["busy-ratio"]} pressure={s.metrics["backpressure-ratio"]} />
                  </td>
                  <td>
                    <div className="meter" role="img" aria-label={`${compact(rate)} records a second`}>
                      <i className="fill" style={{ width: `${(100 * rate) / most}%` }} />
                    </div>
                  </td>
                  <td className="n">{compact(s.metrics["read-records-per-second"])}</td>
                  <td className="n">{compact(s.metrics["write-records-per-second"])}</td>
                  <td className="n">{count(s.metrics["read-records"])}</td>
                  <td className="n">{count(s.metrics["write-records"])}</td>
                  <td className="n nowrap">{bytes(s.metrics["read-bytes"])}</td>
                  <td className="n">{s.attempt + 1}</td>
                  <td className="nowrap">{s["taskmanager-id"].startsWith("(") ? s["taskmanager-id"] : <a href={to("taskmanagers", s["taskmanager-id"])}>{s["taskmanager-id"]}</a>}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <h3>Operators in this vertex</h3>
      <ol className="stack" style={{ gap: 4 }}>
        {(value.operators as Operator[]).map((o) => (
          <li key={o.uid} className="row small">
            <b>{o.name}</b> <span className="dim">{o.kind}</span> <code className="dim">{o.uid}</code>
          </li>
        ))}
      </ol>
    </div>
  );
}

function Watermarks({ job, vertex }: { job: Schemas["Job"]; vertex: Schemas["JobVertex"] }): ReactElement {
  const { value, error } = useVertex(job.jid, vertex.id);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const known = value.subtasks.map((s) => s.metrics.watermark).filter((w): w is number => typeof w === "number");
  if (!known.length) {
    return <Empty title="No watermarks">This vertex has no event time, or no record with a time has arrived yet. Windows over event time behind it wait until there is one.</Empty>;
  }
  const lowest = Math.min(...known);
  return (
    <div className="stack">
      <p className="dim">A watermark says: records up to this time have arrived. The lowest of all inputs counts, so one slow input holds everything up.</p>
      <div className="scroll card">
        <table className="list">
          <thead>
            <tr>
              <th>Subtask</th>
              <th>Watermark</th>
              <th>Ahead of the lowest</th>
              <th>Held by</th>
            </tr>
          </thead>
          <tbody>
            {value.subtasks.map((s) => {
              const mark = s.metrics.watermark;
              return (
                <tr key={s.subtask}>
                  <td>{s.subtask}</td>
                  <td className="nowrap">{watermark(mark, value.now)}</td>
                  <td>{typeof mark === "number" && mark < 9e15 ? (mark === lowest ? "it is the lowest" : span(mark - lowest)) : "–"}</td>
                  <td>{s.metrics["watermark-holder"] ?? "–"}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </div>
  );
}
