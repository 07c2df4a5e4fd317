/** A flame graph: where the time of a vertex's code goes. */
import { useMemo, useState, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../api/client";
import { ago } from "../lib/format";
import { Empty, Loading, Problem, Segments } from "../ui/parts";

type Kind = "full" | "on_cpu" | "off_cpu";

interface Frame {
  name: string;
  value: number;
  children: Frame[];
}

interface Box {
  key: string;
  name: string;
  value: number;
  left: number;
  width: number;
  depth: number;
  frame: Frame;
}

/** The boxes of a frame and of those that it called, widths as shares of the whole. */
export function boxes(root: Frame, least = 0.002): Box[] {
  const found: Box[] = [];
  const place = (frame: Frame, left: number, width: number, depth: number, key: string) => {
    if (width < least) return;
    found.push({ key, name: frame.name, value: frame.value, left, width, depth, frame });
    let at = left;
    frame.children.forEach((child, i) => {
      const share = (width * child.value) / Math.max(1, frame.value);
      place(child, at, share, depth + 1, `${key}.${i}`);
      at += share;
    });
  };
  place(root, 0, 1, 0, "0");
  return found;
}

/** Frames of the reader's own code are warm, of Penstock and libraries cool. */
function colour(name: string): string {
  let hash = 0;
  for (const char of name) hash = (31 * hash + char.charCodeAt(0)) | 0;
  const shade = Math.abs(hash) % 18;
  if (/penstock\//.test(name)) return `hsl(${198 + shade} 45% ${68 + (shade % 9)}%)`;
  if (/site-packages|python3\.\d+|<frozen/.test(name)) return `hsl(${150 + shade} 24% ${70 + (shade % 9)}%)`;
  return `hsl(${22 + shade} 85% ${66 + (shade % 9)}%)`;
}

export function FlamePart({ job, vertex }: { job: string; vertex: Schemas["JobVertex"] }): ReactElement {
  const [kind, setKind] = useState<Kind>("full");
  const path = { job, vertex: vertex.id };
  const { value, error } = useLoaded(`${job}/${vertex.id}/${kind}`, () => data(api.GET("/jobs/{job}/vertices/{vertex}/flamegraph", { params: { path, query: { type: kind } } })), 5000);
  return (
    <div className="stack">
      <div className="row">
        <Segments
          label="Which time"
          items={[
            { key: "full", text: "All" },
            { key: "on_cpu", text: "On the CPU" },
            { key: "off_cpu", text: "Waiting" },
          ]}
          value={kind}
          onChange={setKind}
        />
        {value && value.endTimestamp > 0 && <span className="dim small">sampled {ago(value.endTimestamp)}</span>}
      </div>
      {error && <Problem text={error} />}
      {!value && !error && <Loading />}
      {value && <Picture graph={value} />}
    </div>
  );
}

function Picture({ graph }: { graph: { endTimestamp: number; data?: unknown } }): ReactElement {
  const [zoom, setZoom] = useState<Frame>();
  const root = (graph.data ?? null) as Frame | null;
  const shown = useMemo(() => (root ? boxes(zoom ?? root) : []), [root, zoom]);
  if (graph.endTimestamp === -1) return <Empty title="The vertex has ended">Only running code can be sampled.</Empty>;
  if (!root || root.value === 0) {
    return <Empty title="No samples">In the moments in which the slots were looked at, this vertex's code did not run. It is idle, or its slots do not answer.</Empty>;
  }
  const depth = Math.max(...shown.map((box) => box.depth)) + 1;
  const whole = (zoom ?? root).value;
  return (
    <>
      <p className="dim small">
        {root.value} samples. Wider is more time; below a frame is what it called. Warm colours are your code. {zoom ? <button type="button" className="button quiet small" onClick={() => setZoom(undefined)}>Show all</button> : "Choose a frame to see it alone."}
      </p>
      <div className="flame" style={{ height: depth * 20 }}>
        {shown.map((box) => (
          <button
            key={box.key}
            type="button"
            title={`${box.name}\n${box.value} of ${root.value} samples`}
            aria-label={`${box.name}, ${Math.round((100 * box.value) / whole)} %`}
            style={{ left: `${100 * box.left}%`, width: `${100 * box.width}%`, top: box.depth * 20, background: colour(box.name) }}
            onClick={() => setZoom(box.frame === root ? undefined : box.frame)}
          >
            {box.width > 0.025 ? box.name : ""}
          </button>
        ))}
      </div>
    </>
  );
}
