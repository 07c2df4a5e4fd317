/** The plan of a statement that was explained: vertices as a graph, and the text. */
import { useState, type ReactElement } from "react";
import { Graph } from "../graph/Graph";
import { Card, Segments } from "../ui/parts";
import type { Plan } from "./plan";

export function PlanGraph({ plan }: { plan: Plan }): ReactElement {
  const [form, setForm] = useState<"graph" | "text">("graph");
  const [chosen, setChosen] = useState<string>();
  const node = plan.nodes.find((n) => n.id === chosen);
  return (
    <Card
      title="Plan"
      flush
      end={
        <>
          <span className="small dim">
            {plan.nodes.length} {plan.nodes.length === 1 ? "vertex" : "vertices"}; nothing runs
          </span>
          <Segments
            label="Form of the plan"
            items={[
              { key: "graph", text: "Graph" },
              { key: "text", text: "Text" },
            ]}
            value={form}
            onChange={setForm}
          />
        </>
      }
    >
      {form === "text" ? (
        <pre className="log" tabIndex={0} role="region" aria-label="Plan as text">
          {plan.text}
        </pre>
      ) : (
        <>
          <Graph
            label="Graph of the plan"
            height={76}
            nodes={plan.nodes.map((n) => ({ id: n.id, label: `${n.contents}, parallelism ${n.parallelism}`, content: <Face name={n.type} parallelism={n.parallelism} steps={n.contents.split(" -> ").length} /> }))}
            edges={plan.nodes.flatMap((n) => n.predecessors.map((p) => ({ from: p.id, to: n.id, label: p.ship_strategy.toLowerCase() })))}
            selected={chosen}
            onSelect={(id) => setChosen(id === chosen ? undefined : id)}
          />
          {node && (
            <ol className="sql-steps" aria-label="Steps of the vertex">
              {node.contents.split(" -> ").map((step, i) => (
                <li key={i}>{step}</li>
              ))}
            </ol>
          )}
        </>
      )}
    </Card>
  );
}

function Face({ name, parallelism, steps }: { name: string; parallelism: number; steps: number }): ReactElement {
  return (
    <>
      <span className="name" title={name}>
        {name}
      </span>
      <span className="facts" style={{ marginTop: "auto" }}>
        <span>×{parallelism}</span>
        {steps > 1 && <span>{steps} steps</span>}
      </span>
    </>
  );
}
