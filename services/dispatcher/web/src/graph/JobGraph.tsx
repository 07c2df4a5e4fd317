/** The graph of a running job: rates on the edges, colours for busy and back-pressured vertices. */
import { useMemo, type ReactElement } from "react";
import type { Schemas } from "../api/client";
import { compact, tone, watermark } from "../lib/format";
import { BusyMeter } from "../ui/parts";
import { Graph, type Edge, type Node } from "./Graph";

type Job = Schemas["Job"];

export function JobGraph({ job, why, selected, onSelect, edge, onSelectEdge }: { job: Job; why: Schemas["Verdict"]; selected?: string | undefined; onSelect: (vertex: string) => void; edge: string | undefined; onSelectEdge: (edge: string) => void }): ReactElement {
  const worst = useMemo(() => {
    const found = new Map<string, string>();
    for (const { subject, severity } of why.findings) {
      if (subject.vertex && severity !== "info" && !found.has(subject.vertex)) found.set(subject.vertex, severity);
    }
    return found;
  }, [why]);
  const vertices = useMemo(() => new Map(job.vertices.map((v) => [v.id, v])), [job]);
  const nodes: Node[] = job.vertices.map((vertex) => ({
    id: vertex.id,
    className: worst.get(vertex.id) ?? "",
    label: `${vertex.name}, ${vertex.status.toLowerCase()}, parallelism ${vertex.parallelism}`,
    content: <VertexFace vertex={vertex} now={job.now} />,
  }));
  const edges: Edge[] = job.plan.nodes.flatMap((node) =>
    node.inputs.map((input): Edge => {
      const from = vertices.get(input.id);
      const rate = from?.metrics["write-records-per-second"] ?? 0;
      const strategy = input.ship_strategy.toLowerCase();
      return {
        from: input.id,
        to: node.id,
        ...(input.edge ? { id: input.edge } : {}),
        title: `Show rows from ${from?.name ?? "?"} to ${vertices.get(node.id)?.name ?? "?"}`,
        label: rate ? `${strategy} · ${compact(rate)}/s` : strategy,
        width: 1.5 + Math.min(4, Math.log10(1 + rate)),
        pressed: (from?.metrics["backpressure-ratio"] ?? 0) > 0.5,
      };
    }),
  );
  return <Graph label={`Graph of ${job.name}`} nodes={nodes} edges={edges} selected={selected} onSelect={onSelect} selectedEdge={edge} onSelectEdge={onSelectEdge} />;
}

function VertexFace({ vertex, now }: { vertex: Schemas["JobVertex"]; now: number }): ReactElement {
  const m = vertex.metrics;
  const running = vertex.status === "RUNNING";
  const state = tone(vertex.status);
  return (
    <>
      <span className="top">
        <span className="name" title={vertex.name}>
          {vertex.name}
        </span>
        <span className={`state ${state === "info" ? "" : state}`} title={vertex.status.toLowerCase()} />
      </span>
      <span className="facts" style={{ marginTop: "auto" }}>
        <span>×{vertex.parallelism}</span>
        {running ? (
          <>
            <span>
              in <b>{compact(m["read-records-per-second"])}</b>
            </span>
            <span>
              out <b>{compact(m["write-records-per-second"])}</b>/s
            </span>
            <span title="watermark">{m.watermark ? watermark(m.watermark, now).replace(" behind", "") : ""}</span>
          </>
        ) : (
          <span>{vertex.status.toLowerCase()}</span>
        )}
      </span>
      {running && <BusyMeter busy={m["busy-ratio"]} pressure={m["backpressure-ratio"]} />}
    </>
  );
}
