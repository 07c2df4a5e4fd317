/** All jobs: sorted, filtered, and only as many rows in the page as are seen. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState, type ReactElement } from "react";
import type { Schemas } from "../api/client";
import { useTopic } from "../api/live";
import { moment, span } from "../lib/format";
import { to } from "../lib/router";
import { Badge, Card, Empty, Loading, Segments, State } from "../ui/parts";

type Row = Schemas["JobRow"];
type Key = "state" | "name" | "start-time" | "duration" | "tasks" | "end-time";
type Shown = "jobs" | "active" | "ended" | "failed" | "queries";

const COLUMNS: { key: Key; text: string; wide?: boolean; number?: boolean }[] = [
  { key: "state", text: "State" },
  { key: "name", text: "Name" },
  { key: "start-time", text: "Started", wide: true },
  { key: "duration", text: "Duration", number: true },
  { key: "tasks", text: "Tasks", wide: true, number: true },
  { key: "end-time", text: "Ended", wide: true, number: true },
];
const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);

/** The rows that a filter leaves, sorted. */
export function chosen(rows: Row[], shown: Shown, words: string, by: Key, down: boolean): Row[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    // A SELECT that has ended was answered to its client; here it would only hide the jobs.
    const query = row.interactive && ENDED.has(row.state);
    if (shown === "queries" ? !row.interactive : query) return false;
    if (shown === "active" && ENDED.has(row.state)) return false;
    if (shown === "ended" && !ENDED.has(row.state)) return false;
    if (shown === "failed" && row.state !== "FAILED") return false;
    const text = `${row.name} ${row.jid} ${row.state}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  const value = (row: Row): string | number => (by === "tasks" ? (row.tasks["total"] ?? 0) : (row[by] as string | number));
  const sign = down ? -1 : 1;
  return found.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = typeof x === "string" ? x.localeCompare(String(y)) : x - Number(y);
    return sign * order || a.jid.localeCompare(b.jid);
  });
}

export function JobsPage(): ReactElement {
  const { value } = useTopic("overview");
  const [shown, setShown] = useState<Shown>("jobs");
  const [words, setWords] = useState("");
  const [sort, setSort] = useState<{ by: Key; down: boolean }>({ by: "start-time", down: true });
  const rows = useMemo(() => (value ? chosen(value.jobs, shown, words, sort.by, sort.down) : []), [value, shown, words, sort]);
  const severities = useMemo(() => new Map(value?.why.map((v) => [v.jid, v])), [value]);
  if (!value) return <Loading />;
  return (
    <>
      <div className="page-head">
        <h1>Jobs</h1>
        <div className="actions">
          <a className="button main" href={to("submit")}>
            New job
          </a>
        </div>
      </div>
      <div className="row" style={{ marginBottom: 14 }}>
        <Segments
          label="Which jobs"
          items={[
            { key: "jobs", text: "Jobs" },
            { key: "active", text: "Active" },
            { key: "ended", text: "Ended" },
            { key: "failed", text: "Failed" },
            { key: "queries", text: "Queries" },
          ]}
          value={shown}
          onChange={setShown}
        />
        <input className="input grow" type="search" placeholder="Name, id or state" aria-label="Find jobs" value={words} onChange={(e) => setWords(e.target.value)} style={{ maxWidth: 360 }} />
        <span className="dim small num" role="status">
          {rows.length === value.jobs.length ? `${rows.length} jobs` : `${rows.length} of ${value.jobs.length} jobs`}
        </span>
      </div>
      <Card flush label="Jobs">
        <Rows rows={rows} why={severities} sort={sort} onSort={(by) => setSort((s) => ({ by, down: s.by === by ? !s.down : by !== "name" && by !== "state" }))} />
        {rows.length === 0 && <Empty title={value.jobs.length ? "No job matches" : "There is no job yet"}>{value.jobs.length ? "Change the filter above." : <a href={to("submit")}>Submit one</a>}</Empty>}
      </Card>
    </>
  );
}

interface RowsProps {
  rows: Row[];
  why: Map<string, Schemas["Verdict"]>;
  sort: { by: Key; down: boolean };
  onSort: (by: Key) => void;
}

function Rows({ rows, why, sort, onSort }: RowsProps): ReactElement {
  const frame = useRef<HTMLDivElement>(null);
  const list = useVirtualizer({ count: rows.length, getScrollElement: () => frame.current, estimateSize: () => 46, overscan: 12, getItemKey: (i) => rows[i]?.jid ?? i });
  return (
    <div ref={frame} className="vlist" role="table" aria-label="Jobs" aria-rowcount={rows.length + 1} tabIndex={0}>
      <div className="vrow head jobs-cols" role="row">
        {COLUMNS.map((column) => (
          <span key={column.key} role="columnheader" className={`${column.wide ? "wide" : ""} ${column.number ? "n" : ""}`} aria-sort={sort.by === column.key ? (sort.down ? "descending" : "ascending") : "none"}>
            <button type="button" onClick={() => onSort(column.key)}>
              {column.text} {sort.by === column.key ? (sort.down ? "↓" : "↑") : ""}
            </button>
          </span>
        ))}
      </div>
      <div role="rowgroup" style={{ height: list.getTotalSize(), position: "relative" }}>
        {list.getVirtualItems().map((item) => {
          const row = rows[item.index];
          return row && <JobLine key={item.key} row={row} verdict={why.get(row.jid)} top={item.start} height={item.size} index={item.index} />;
        })}
      </div>
    </div>
  );
}

function JobLine({ row, verdict, top, height, index }: { row: Row; verdict: Schemas["Verdict"] | undefined; top: number; height: number; index: number }): ReactElement {
  const total = row.tasks["total"] ?? 0;
  const trouble = verdict && (verdict.severity === "error" || verdict.severity === "warning");
  return (
    <div className="vrow jobs-cols" role="row" aria-rowindex={index + 2} style={{ position: "absolute", left: 0, right: 0, height, transform: `translateY(${top}px)` }}>
      <span role="cell">
        <State of={row.state} />
      </span>
      <span role="cell" className="row" style={{ gap: 8, flexWrap: "nowrap", minWidth: 0 }}>
        <a className="clip" href={to("jobs", row.jid)}>
          {row.name}
        </a>
        {trouble && (
          <span title={verdict.summary}>
            <Badge of={verdict.severity === "error" ? "bad" : "warn"} plain>
              {verdict.findings[0]?.code.replaceAll("-", " ")}
            </Badge>
          </span>
        )}
      </span>
      <span role="cell" className="wide dim nowrap small">
        {moment(row["start-time"])}
      </span>
      <span role="cell" className="n nowrap">
        {span(row.duration)}
      </span>
      <span role="cell" className="wide n">
        {row.tasks["running"] ? `${row.tasks["running"]} / ${total}` : total}
      </span>
      <span role="cell" className="wide n dim nowrap small">
        {row["end-time"] >= 0 ? moment(row["end-time"]).replace(/ \d{4}/, "") : "–"}
      </span>
    </div>
  );
}
