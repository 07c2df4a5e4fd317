/** Failures: the reader's own traceback first. */
import type { ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { moment } from "../../lib/format";
import { to } from "../../lib/router";
import { Badge, Card, Empty, Loading, Problem } from "../../ui/parts";

type Entry = Schemas["ExceptionEntry"];

export function ExceptionsTab({ job }: { job: Schemas["Job"] }): ReactElement {
  const { value, error } = useLoaded(`${job.jid}/exceptions/${job.attempt}/${job.state}`, () => data(api.GET("/jobs/{job}/exceptions", { params: { path: { job: job.jid } } })), 4000);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const { entries, truncated } = value.exceptionHistory;
  if (!entries.length) {
    return (
      <Card>
        <Empty title="Nothing has failed">If a task fails, its error appears here: first the lines of your own code, then the message and what to do.</Empty>
      </Card>
    );
  }
  return (
    <div className="stack">
      {entries.map((entry, i) => (
        <Failure key={`${entry.timestamp}${i}`} entry={entry} first={i === 0} />
      ))}
      {truncated && <p className="dim">Older failures are not shown.</p>}
    </div>
  );
}

/** The text of a failure in its parts: the traceback, and what Penstock says about it. */
export function partsOf(text: string): { trace: string; said: string } {
  const lines = text.trimEnd().split("\n");
  const start = lines.findIndex((line) => /^Traceback \(most recent call last\)/.test(line.trim()));
  if (start < 0) return { trace: "", said: lines.join("\n") };
  let end = start + 1;
  // A traceback ends with its first line that is not indented: the exception itself.
  while (end < lines.length && (/^\s/.test(lines[end] ?? "") || lines[end] === "")) end += 1;
  end = Math.min(lines.length, end + 1);
  const said = [...lines.slice(0, start), ...lines.slice(end)].join("\n").trim();
  return { trace: lines.slice(start, end).join("\n"), said };
}

/** One line about a failure: the exception of the reader's own code, else Penstock's message. */
export function headOf(text: string): string {
  const { trace, said } = partsOf(text);
  return ((trace ? trace.split("\n").at(-1) : said.split("\n")[0]) ?? "").trim().slice(0, 200);
}

function Failure({ entry, first }: { entry: Entry; first: boolean }): ReactElement {
  const { trace, said } = partsOf(entry.stacktrace);
  const title = headOf(entry.stacktrace) || entry.exceptionName;
  return (
    <Card
      title={<span style={{ overflowWrap: "anywhere" }}>{title}</span>}
      end={
        <>
          {first && <Badge of="bad">newest</Badge>}
          {entry.failureLabels["code"] && (
            <Badge plain>
              <code>{entry.failureLabels["code"]}</code>
            </Badge>
          )}
          <span className="dim small">
            {moment(entry.timestamp)}
            {entry.attempt ? `, attempt ${entry.attempt}` : ""}
          </span>
        </>
      }
    >
      <div className="stack">
        {trace && (
          <div>
            <h3 style={{ marginBottom: 6 }}>Your code</h3>
            <pre className="trace" tabIndex={0}>
              {trace}
            </pre>
          </div>
        )}
        {said && <pre>{said}</pre>}
        <div className="row small dim">
          {entry.taskName && <span>Task: {entry.taskName}</span>}
          {entry.endpoint && (
            <span>
              on <a href={to("taskmanagers", entry.endpoint, "logs")}>{entry.endpoint}</a>
            </span>
          )}
        </div>
        {entry.notRestarted && <div className="notice bad" style={{ margin: 0 }}>Not restarted: {entry.notRestarted}</div>}
        {entry.restoredInstead && <div className="notice" style={{ margin: 0 }}>{entry.restoredInstead}</div>}
        {entry.concurrentExceptions.length > 0 && (
          <details>
            <summary>{entry.concurrentExceptions.length} more at the same time, most likely its consequences</summary>
            <div className="stack" style={{ marginTop: 10 }}>
              {entry.concurrentExceptions.map((other, i) => (
                <pre key={i} className="trace" tabIndex={0}>
                  {other.taskName ? `${other.taskName}\n` : ""}
                  {other.stacktrace}
                </pre>
              ))}
            </div>
          </details>
        )}
      </div>
    </Card>
  );
}
