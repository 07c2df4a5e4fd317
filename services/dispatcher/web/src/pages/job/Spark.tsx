/** The stages of a job that Spark runs. */
import type { ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { bytes, count } from "../../lib/format";
import { Card, Empty, Loading, Meter, Problem } from "../../ui/parts";

interface Stage {
  id: number;
  name: string;
  status: string;
  tasks: number;
  completed: number;
  failed: number;
  input_rows: number;
  input_bytes: number;
  shuffle_bytes: number;
  spilled_bytes: number;
}

interface Query {
  operator: string;
  attempt: number;
  progress: { details?: Stage[] } | null;
  log: string;
}

export function SparkTab({ job }: { job: Schemas["Job"] }): ReactElement {
  const { value, error } = useLoaded(`${job.jid}/spark`, async () => (await data(api.GET("/jobs/{job}/spark", { params: { path: { job: job.jid } } }))) as unknown as { queries: Query[] }, 3000);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  if (!value.queries.length) return <Empty title="No query on Spark yet" />;
  return (
    <div className="stack">
      {value.queries.map((query, i) => (
        <Card key={i} title={query.operator} flush>
          <div className="scroll">
            <table className="list">
              <thead>
                <tr>
                  <th>Stage</th>
                  <th style={{ minWidth: 120 }}>Tasks</th>
                  <th className="n">Done</th>
                  <th className="n">Failed</th>
                  <th className="n">Read</th>
                  <th className="n">Rows</th>
                  <th className="n">Shuffled</th>
                  <th className="n">Spilled</th>
                </tr>
              </thead>
              <tbody>
                {(query.progress?.details ?? []).map((stage) => (
                  <tr key={stage.id}>
                    <td>
                      {stage.id} {stage.name} <span className="dim small">{stage.status.toLowerCase()}</span>
                    </td>
                    <td>
                      <Meter share={stage.completed / Math.max(1, stage.tasks)} say={`${stage.completed} of ${stage.tasks} tasks`} />
                    </td>
                    <td className="n">{`${stage.completed} / ${stage.tasks}`}</td>
                    <td className="n">{stage.failed}</td>
                    <td className="n nowrap">{bytes(stage.input_bytes)}</td>
                    <td className="n">{count(stage.input_rows)}</td>
                    <td className="n nowrap">{bytes(stage.shuffle_bytes)}</td>
                    <td className="n nowrap">{bytes(stage.spilled_bytes)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {query.log && (
            <details style={{ padding: "10px 16px" }}>
              <summary>Log of the driver and of Spark</summary>
              <pre className="trace" tabIndex={0}>{query.log}</pre>
            </details>
          )}
        </Card>
      ))}
    </div>
  );
}
