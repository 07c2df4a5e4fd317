/** The rows that pass over an edge, live. */
import { useEffect, useRef, useState, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { useTap, type TapRow } from "../../api/tap";
import { shown } from "../../lib/exact";
import { count } from "../../lib/format";
import { go } from "../../lib/router";
import { Icon } from "../../ui/icons";
import { Empty, Problem } from "../../ui/parts";

export function EdgeDrawer({ job, edge }: { job: Schemas["Job"]; edge: string }): ReactElement {
  const panel = useRef<HTMLElement>(null);
  const [paused, setPaused] = useState(false);
  const known = useLoaded(`edges ${job.jid}`, () => data(api.GET("/jobs/{job}/edges", { params: { path: { job: job.jid } } })));
  const tapped = useTap(job.jid, edge, paused);
  const close = () => go("jobs", job.jid);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus();
    return () => before?.focus?.();
  }, []);
  const facts = known.value?.edges.find((e) => e.id === edge || e.name === edge);
  const { last } = tapped;
  return (
    <aside ref={panel} className="drawer" tabIndex={-1} role="dialog" aria-label={`Rows of edge ${facts?.name ?? edge}`} onKeyDown={(event) => event.key === "Escape" && close()}>
      <header>
        <div className="row" style={{ flexWrap: "nowrap", alignItems: "flex-start", paddingBottom: 12 }}>
          <div className="grow">
            <h2 style={{ overflowWrap: "anywhere" }}>{facts ? `${facts["source-name"]} → ${facts["target-name"]}` : "Rows of an edge"}</h2>
            <div className="small dim num" style={{ marginTop: 4 }}>
              {facts && `edge ${facts.name}, ${facts["ship-strategy"].toLowerCase()}${facts.tag ? `, side output ${facts.tag}` : ""} · `}
              {count(tapped.passed)} rows have passed since this was opened, {count(tapped.shown)} of them are shown
            </div>
          </div>
          <button type="button" className="button" aria-pressed={paused} disabled={!!tapped.ended} onClick={() => setPaused(!paused)}>
            {paused ? "Go on" : "Pause"}
          </button>
          <button type="button" className="button quiet icon" onClick={close} aria-label="Close">
            <Icon name="close" />
          </button>
        </div>
      </header>
      <div className="body" tabIndex={0} role="region" aria-label="Rows">
        {tapped.error && <Problem text={tapped.error} />}
        {tapped.ended && <div className="notice">No more rows come: {tapped.ended}.</div>}
        {!tapped.ended && last?.problem && <div className="notice">Rows may be missing: {last.problem}.</div>}
        {!tapped.ended && last !== undefined && last.silent > 0 && (
          <div className="notice">
            {last.silent} of {last.subtasks} subtasks do not answer at the moment.
          </div>
        )}
        {tapped.rows.length ? (
          <Rows columns={tapped.columns} rows={tapped.rows} />
        ) : (
          !tapped.error && !tapped.ended && <Empty title="No row has passed yet">Rows appear here as they pass: up to 20 a second, of more a random sample.</Empty>
        )}
      </div>
    </aside>
  );
}

function Rows({ columns, rows }: { columns: Schemas["TapColumn"][]; rows: TapRow[] }): ReactElement {
  const timed = rows.some((row) => row.time !== null);
  return (
    <div className="scroll">
      <table className="list tapped">
        <thead>
          <tr>
            <th className="n">Subtask</th>
            <th>Kind</th>
            {timed && <th>Event time (UTC)</th>}
            {columns.map((column, i) => (
              <th key={i} title={column.type}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <td className="n">{row.subtask}</td>
              <td className={row.kind === "-U" || row.kind === "-D" ? "dim" : ""}>{row.kind}</td>
              {timed && <td className="nowrap">{row.time === null ? "" : time(row.time)}</td>}
              {(row.values as unknown[]).map((value, i) => (
                <td key={i} className={typeof value === "number" ? "n" : ""} title={typeof value === "string" && value.length > 40 ? value : undefined}>
                  {value === null ? <span className="dim">NULL</span> : shown(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function time(ms: number): string {
  const found = new Date(ms);
  return Number.isNaN(found.getTime()) ? `${ms} ms` : found.toISOString().replace("T", " ").replace("Z", "");
}
