/** The plan of EXPLAIN JSON_EXECUTION_PLAN: its text, and its vertices as a graph. Pure. */

export interface PlanNode {
  id: string;
  type: string;
  contents: string;
  parallelism: number;
  predecessors: { id: string; ship_strategy: string }[];
}

export interface Plan {
  text: string;
  nodes: PlanNode[];
}

const MARK = "== Physical Execution Plan ==";

/** Throws an Error if the text is no such plan. */
export function planOf(text: string): Plan {
  const at = text.lastIndexOf(MARK);
  if (at < 0) throw new Error("The gateway explained the statement without a graph.");
  const { nodes } = JSON.parse(text.slice(at + MARK.length)) as { nodes: PlanNode[] };
  return { text: text.slice(0, at).trimEnd(), nodes };
}
