/** The graph, the same facts as a table, and the drawer of a vertex. */
import { useEffect, useState, type ReactElement } from "react";
import type { Schemas } from "../../api/client";
import { compact, count, span, watermark } from "../../lib/format";
import { historyOf } from "../../lib/history";
import { go, to } from "../../lib/router";
import { JobGraph } from "../../graph/JobGraph";
import { BusyLegend, BusyMeter, Card, Empty, Segments, State } from "../../ui/parts";
import { Chart } from "../../ui/chart";
import { Guarantees } from "./Guarantees";
import { EdgeDrawer } from "./EdgeDrawer";
import { VertexDrawer } from "./VertexDrawer";

export function GraphTab({ live, vertex, edge, part }: { live: Schemas["LiveJob"]; vertex: string | undefined; edge: string | undefined; part: string }): ReactElement {
  const { job, why } = live;
  const [shown, setShown] = useState<"graph" | "table">("graph");
  const chosen = job.vertices.find((v) => v.id === vertex);
  if (!job.vertices.length) return <Empty title="The job has no vertices yet">It is still being planned or deployed.</Empty>;
  return (
    <div className="stack">
      {job["waiting-for"] && <div className="notice">The job waits: {job["waiting-for"]}</div>}
      <Card
        title="What runs"
        end={
          <>
            <BusyLegend />
            <Segments
              label="Form"
              items={[
                { key: "graph", text: "Graph" },
                { key: "table", text: "Table" },
              ]}
              value={shown}
              onChange={setShown}
            />
          </>
        }
        flush
      >
        {shown === "graph" ? <JobGraph job={job} why={why} selected={vertex} onSelect={(id) => go("jobs", job.jid, "graph", id)} edge={edge} onSelectEdge={(id) => go("jobs", job.jid, "edges", id)} /> : <VertexTable job={job} />}
      </Card>
      <JobCharts job={job} />
      <Guarantees job={job} />
      {chosen && <VertexDrawer key={chosen.id} job={job} vertex={chosen} why={why} part={part} />}
      {edge && <EdgeDrawer key={edge} job={job} edge={edge} />}
    </div>
  );
}

function VertexTable({ job }: { job: Schemas["Job"] }): ReactElement {
  return (
    <div className="scroll">
      <table className="list">
        <thead>
          <tr>
            <th>Vertex</th>
            <th>State</th>
            <th className="n">Subtasks</th>
            <th className="n">In /s</th>
            <th className="n">Out /s</th>
            <th className="n">Records in</th>
            <th className="n">Records out</th>
            <th style={{ minWidth: 110 }}>Busy</th>
            <th>Watermark</th>
          </tr>
        </thead>
        <tbody>
          {job.vertices.map((v) => (
            <tr key={v.id}>
              <td style={{ minWidth: 220 }}>
                <a href={to("jobs", job.jid, "graph", v.id)}>{v.name}</a>
              </td>
              <td>
                <State of={v.status} />
              </td>
              <td className="n">{v.parallelism}</td>
              <td className="n">{compact(v.metrics["read-records-per-second"])}</td>
              <td className="n">{compact(v.metrics["write-records-per-second"])}</td>
              <td className="n">{count(v.metrics["read-records"])}</td>
              <td className="n">{count(v.metrics["write-records"])}</td>
              <td>
                <BusyMeter busy={v.metrics["busy-ratio"]} pressure={v.metrics["backpressure-ratio"]} />
              </td>
              <td className="nowrap dim small">{watermark(v.metrics.watermark, job.now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Throughput of the sources and sinks, and the busiest vertices, while the page is open. */
function JobCharts({ job }: { job: Schemas["Job"] }): ReactElement | null {
  const series = historyOf(job.jid);
  const [, turn] = useState(0);
  useEffect(() => turn((n) => n + 1), [job]);
  if (!series || series.times.length < 2 || job["end-time"] >= 0) return null;
  const enumerators = new Set(job.vertices.filter((v) => (v.operators as { kind?: string }[]).every((o) => o.kind === "enumerator")).map((v) => v.id));
  const read = new Set(job.plan.nodes.flatMap((n) => n.inputs.map((i) => i.id)));
  const sources = job.plan.nodes.filter((n) => !enumerators.has(n.id) && n.inputs.every((i) => enumerators.has(i.id)));
  const sinks = job.plan.nodes.filter((n) => !read.has(n.id));
  const sum = (ids: string[]) => series.times.map((_, i) => ids.reduce((total, id) => total + (series.values[`${id}.out`]?.[i] ?? 0), 0));
  const busiest = [...job.vertices].sort((a, b) => b.metrics["busy-ratio"] - a.metrics["busy-ratio"]).slice(0, 4);
  const lags = job.vertices.filter((v) => !enumerators.has(v.id) && series.values[`${v.id}.lag`]?.some((x) => x !== null)).slice(0, 5);
  const short = (name: string) => (name.length > 34 ? `${name.slice(0, 33)}…` : name);
  return (
    <div className="grid two">
      <Card>
        <Chart
          title="Throughput"
          note="records a second"
          times={series.times}
          sync={job.jid}
          show={(v) => compact(v)}
          lines={[
            { label: "sources write", values: sum(sources.map((n) => n.id)), fill: true },
            { label: "sinks take", values: sum(sinks.map((n) => n.id)) },
          ]}
        />
      </Card>
      <Card>
        <Chart title="Busiest vertices" note="share of time, busiest subtask" times={series.times} sync={job.jid} show={(v) => `${Math.round(v)} %`} lines={busiest.map((v) => ({ label: short(v.name), values: series.values[`${v.id}.busy`] ?? [] }))} />
      </Card>
      {lags.length > 0 && (
        <Card>
          <Chart title="Event time behind the clock" note="watermark of each vertex" times={series.times} sync={job.jid} show={(v) => span(1000 * v)} lines={lags.map((v) => ({ label: short(v.name), values: series.values[`${v.id}.lag`] ?? [] }))} />
        </Card>
      )}
    </div>
  );
}
