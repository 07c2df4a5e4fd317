/** The places of vertices and edges. */
import dagre from "@dagrejs/dagre";

export interface Asked {
  nodes: string[];
  edges: { from: string; to: string }[];
  direction: "LR" | "TB";
  width: number;
  height: number;
}

export interface Placed {
  nodes: Record<string, { x: number; y: number }>;
  /** A path and the place of its label, in the order of the edges asked for. */
  edges: { path: string; x: number; y: number }[];
  width: number;
  height: number;
}

/** Top left corners of vertices, and edges as curves. */
export function layout({ nodes, edges, direction, width, height }: Asked): Placed {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 28, ranksep: 96, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node, { width, height });
  edges.forEach((edge, i) => graph.setEdge(edge.from, edge.to, {}, String(i)));
  dagre.layout(graph);
  const places: Placed["nodes"] = {};
  for (const node of nodes) {
    const at = graph.node(node) as { x: number; y: number };
    places[node] = { x: at.x - width / 2, y: at.y - height / 2 };
  }
  const whole = graph.graph() as { width?: number; height?: number };
  return {
    nodes: places,
    edges: edges.map((edge, i) => {
      const { points } = graph.edge(edge.from, edge.to, String(i)) as { points: { x: number; y: number }[] };
      const middle = points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 };
      return { path: curve(points, direction), x: middle.x, y: middle.y };
    }),
    width: whole.width ?? width,
    height: whole.height ?? height,
  };
}

/** A smooth path through the points, along the direction of the graph. */
export function curve(points: { x: number; y: number }[], direction: "LR" | "TB"): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${round(first.x)},${round(first.y)}`;
  let before = first;
  for (const point of rest) {
    const [mx, my] = [(before.x + point.x) / 2, (before.y + point.y) / 2];
    const bends = direction === "LR" ? [mx, before.y, mx, point.y] : [before.x, my, point.x, my];
    path += `C${bends.map(round).join(",")},${round(point.x)},${round(point.y)}`;
    before = point;
  }
  return path;
}

function round(value: number): number {
  return Math.round(10 * value) / 10;
}
