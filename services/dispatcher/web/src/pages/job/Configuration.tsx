/** The plan of a job as EXPLAIN shows it, and its configuration. */
import { useState, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { Card, Empty, Loading, Problem } from "../../ui/parts";

export function PlanTab({ job }: { job: Schemas["Job"] }): ReactElement {
  return (
    <Card title="Plan" flush>
      {job.plan.text ? (
        <pre className="log" tabIndex={0} role="region" aria-label="Plan">
          {job.plan.text}
        </pre>
      ) : (
        <Empty title="No plan as text">The job came as a graph, not as SQL or a program.</Empty>
      )}
    </Card>
  );
}

export function ConfigurationTab({ job }: { job: Schemas["Job"] }): ReactElement {
  const { value, error } = useLoaded(`${job.jid}/config`, () => data(api.GET("/jobs/{job}/config", { params: { path: { job: job.jid } } })));
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const options = Object.entries((value["execution-config"] as { "user-config"?: Record<string, string> } | null)?.["user-config"] ?? {}).map(([key, found]) => ({ key, value: String(found) }));
  return <OptionList title="What the job sets" options={options} empty="The job sets nothing: every option has its default." />;
}

export function OptionList({ title, options, empty }: { title: string; options: { key: string; value: string }[]; empty: string }): ReactElement {
  const [words, setWords] = useState("");
  const shown = options.filter((o) => `${o.key} ${o.value}`.toLowerCase().includes(words.toLowerCase())).sort((a, b) => a.key.localeCompare(b.key));
  return (
    <Card title={title} end={options.length > 8 && <input className="input" type="search" placeholder="Find an option" aria-label="Find an option" value={words} onChange={(e) => setWords(e.target.value)} />} flush>
      {shown.length ? (
        <div className="scroll">
          <table className="list">
            <tbody>
              {shown.map((o) => (
                <tr key={o.key}>
                  <td>
                    <code>{o.key}</code>
                  </td>
                  <td style={{ overflowWrap: "anywhere" }}>
                    <code>{o.value}</code>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <Empty title="Nothing to show">{options.length ? "No option matches." : empty}</Empty>
      )}
    </Card>
  );
}
