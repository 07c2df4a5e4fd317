/** Records that could not be read or processed, and were set aside. */
import { useState, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { moment } from "../../lib/format";
import { Card, Empty, Loading, Problem } from "../../ui/parts";

interface Letter {
  operator: string;
  where: string | null;
  error: unknown;
  record: unknown;
  time_ms: number;
  state: string;
  kept: string;
}

export function DeadLettersTab({ job }: { job: Schemas["Job"] }): ReactElement {
  const [after, setAfter] = useState<string[]>([""]);
  const current = after[after.length - 1] ?? "";
  const { value, error } = useLoaded(`${job.jid}/letters/${current}`, async () => {
    const found = await data(api.GET("/jobs/{job}/dead-letters", { params: { path: { job: job.jid }, query: { after: current, limit: "100" } } }));
    return found as unknown as { "dead-letters": Letter[]; next: string; more: boolean };
  });
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const letters = value["dead-letters"];
  if (!letters.length) {
    return (
      <Card>
        <Empty title="No dead letters">
          With the option <code>on-error</code> = <code>dead-letter</code>, records that cannot be read or processed are set aside here, each with its error, and the job goes on. They are written at checkpoints.
        </Empty>
      </Card>
    );
  }
  return (
    <Card title="Dead letters" flush>
      <div className="scroll">
        <table className="list">
          <thead>
            <tr>
              <th>When</th>
              <th>State</th>
              <th>Operator</th>
              <th>Error</th>
              <th>Record</th>
            </tr>
          </thead>
          <tbody>
            {letters.map((letter, i) => (
              <tr key={i}>
                <td className="nowrap dim small">{moment(letter.time_ms)}</td>
                <td title={letter.kept}>{letter.state}</td>
                <td>
                  {letter.operator}
                  {letter.where && <div className="dim small">{letter.where}</div>}
                </td>
                <td style={{ maxWidth: 420, overflowWrap: "anywhere" }}>{textOf(letter.error)}</td>
                <td style={{ maxWidth: 420, overflowWrap: "anywhere" }}>
                  <code>{textOf(letter.record)}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div className="row" style={{ padding: "10px 16px" }}>
        <button type="button" className="button" disabled={after.length < 2} onClick={() => setAfter(after.slice(0, -1))}>
          Back
        </button>
        <button type="button" className="button" disabled={!value.more} onClick={() => setAfter([...after, value.next])}>
          Next
        </button>
      </div>
    </Card>
  );
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  const message = (value as { message?: string } | null)?.message;
  return message ?? JSON.stringify(value);
}
