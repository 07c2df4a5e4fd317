/** A graph of vertices: laid out once for its shape, then only its figures change. */
import { memo, useEffect, useMemo, useRef, useState, type ReactElement, type ReactNode } from "react";
import { Icon } from "../ui/icons";
import type { Asked, Placed } from "./layout";
import { usePanZoom } from "./usePanZoom";
import LayoutWorker from "./layout.worker?worker";

export const WIDTH = 232;
export const HEIGHT = 92;

export interface Node {
  id: string;
  className?: string;
  label: string;
  content: ReactNode;
}

export interface Edge {
  from: string;
  to: string;
  /** By which it is selected; without one it cannot be. */
  id?: string;
  title?: string;
  label?: string;
  width?: number;
  pressed?: boolean;
}

interface Props {
  label: string;
  nodes: Node[];
  edges: Edge[];
  selected?: string | undefined;
  onSelect?: (id: string) => void;
  selectedEdge?: string | undefined;
  onSelectEdge?: (id: string) => void;
  height?: number;
}

/** Asks the worker for a layout of the graph's shape. */
function useLayout(nodes: Node[], edges: Edge[], direction: "LR" | "TB", height: number): Placed | undefined {
  const shape = JSON.stringify([direction, height, nodes.map((n) => n.id), edges.map((e) => [e.from, e.to])]);
  const [placed, setPlaced] = useState<{ shape: string; placed: Placed }>();
  const worker = useRef<Worker | undefined>(undefined);
  const turn = useRef(0);
  useEffect(() => () => worker.current?.terminate(), []);
  useEffect(() => {
    worker.current ??= new LayoutWorker();
    const mine = ++turn.current;
    worker.current.onmessage = (event: MessageEvent<{ turn: number; placed: Placed }>) => {
      if (event.data.turn === turn.current) setPlaced({ shape, placed: event.data.placed });
    };
    const asked: Asked = { nodes: nodes.map((n) => n.id), edges: edges.map((e) => ({ from: e.from, to: e.to })), direction, width: WIDTH, height };
    worker.current.postMessage({ turn: mine, asked });
    // The shape is the whole of what the layout depends on.
  }, [shape]);
  return placed?.shape === shape ? placed.placed : undefined;
}

export function Graph({ label, nodes, edges, selected, onSelect, selectedEdge, onSelectEdge, height = HEIGHT }: Props): ReactElement {
  const frame = useRef<HTMLDivElement>(null);
  const layer = useRef<HTMLDivElement>(null);
  const [direction, setDirection] = useState<"LR" | "TB">(window.innerWidth > 760 ? "LR" : "TB");
  useEffect(() => {
    const onResize = () => setDirection(window.innerWidth > 760 ? "LR" : "TB");
    window.addEventListener("resize", onResize);
    return () => window.removeEventListener("resize", onResize);
  }, []);
  const placed = useLayout(nodes, edges, direction, height);
  const plane = useMemo(() => (placed ? { width: placed.width, height: placed.height } : undefined), [placed]);
  const { fit, zoom, reveal } = usePanZoom(frame, layer, plane);
  return (
    <div ref={frame} className="graph" role="group" aria-label={`${label}. Arrow keys move it, + and - zoom, 0 shows all.`}>
      <div ref={layer} className="layer">
        {placed && <Edges placed={placed} edges={edges} />}
        {placed &&
          nodes.map((node) => {
            const place = placed.nodes[node.id];
            if (!place) return null;
            return (
              <button
                key={node.id}
                type="button"
                data-vertex={node.id}
                className={`vertex ${node.className ?? ""} ${node.id === selected ? "on" : ""}`}
                style={{ transform: `translate(${place.x}px,${place.y}px)`, width: WIDTH, height }}
                aria-label={node.label}
                onFocus={(event) => event.currentTarget.matches(":focus-visible") && reveal({ ...place, width: WIDTH, height })}
                onClick={() => onSelect?.(node.id)}
              >
                {node.content}
              </button>
            );
          })}
        {placed?.edges.map((place, i) => {
          const edge = edges[i];
          if (!edge?.id || !onSelectEdge) return null;
          const id = edge.id;
          return (
            <button
              key={id}
              type="button"
              data-edge={id}
              className={`edge-button ${id === selectedEdge ? "on" : ""}`}
              style={{ left: place.x, top: place.y - 14 }}
              title={edge.title}
              aria-label={edge.title}
              onFocus={(event) => event.currentTarget.matches(":focus-visible") && reveal({ x: place.x - 60, y: place.y - 20, width: 120, height: 24 })}
              onClick={() => onSelectEdge(id)}
            >
              {edge.label}
            </button>
          );
        })}
      </div>
      <div className="tools">
        <button type="button" className="button icon" onClick={() => zoom(1.25)} aria-label="Zoom in">
          <Icon name="plus" />
        </button>
        <button type="button" className="button icon" onClick={() => zoom(0.8)} aria-label="Zoom out">
          <Icon name="minus" />
        </button>
        <button type="button" className="button icon" onClick={fit} aria-label="Show the whole graph">
          <Icon name="fit" />
        </button>
      </div>
    </div>
  );
}

const Edges = memo(function Edges({ placed, edges }: { placed: Placed; edges: Edge[] }): ReactElement {
  return (
    <svg className="edges" width={placed.width} height={placed.height} aria-hidden="true">
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">
          <path d="M0 0.6 L7.4 4 L0 7.4z" fill="var(--line-strong)" />
        </marker>
      </defs>
      {placed.edges.map((edge, i) => {
        const facts = edges[i];
        return (
          <g key={i}>
            <path className={`edge ${facts?.pressed ? "pressed" : ""}`} d={edge.path} strokeWidth={facts?.width ?? 1.5} markerEnd="url(#arrow)" />
            {facts?.label && !facts.id && (
              <text className="edge-label" x={edge.x} y={edge.y - 5}>
                {facts.label}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
});
