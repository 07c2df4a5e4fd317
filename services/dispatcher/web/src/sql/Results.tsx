/** The rows of a statement: as a table that follows the changelog, as the changes themselves, as a chart. */
import { useState, type ReactElement } from "react";
import { Chart } from "../ui/chart";
import { shown } from "../lib/exact";
import { compact, count } from "../lib/format";
import { Badge, Card, Empty, Segments } from "../ui/parts";
import { axesOf, chartOf, isNumber, NONE, type Axes, type Column } from "./charting";
import { MOST_CHANGES, MOST_ROWS, SIGN, sorted, type Row } from "./changelog";
import type { Result } from "./store";

const PER_PAGE = 100;
/** So many rows are drawn in a chart. */
const CHARTED = 5_000;
type Form = "rows" | "changes" | "chart";

export function Results({ result }: { result: Result }): ReactElement {
  const [form, setForm] = useState<Form>("rows");
  const counts = result.log.counts();
  const text = onlyText(result);
  const forms: { key: Form; text: string }[] = [
    { key: "rows", text: "Rows" },
    { key: "changes", text: "Changes" },
    { key: "chart", text: "Chart" },
  ];
  return (
    <Card
      flush
      title={
        <>
          Result {result.query && <Badge of={result.ended ? "info" : "ok"}>{result.ended ? "ended" : "live"}</Badge>}
        </>
      }
      end={
        <>
          <span className="small dim num">
            {count(counts.rows)} {counts.rows === 1 ? "row" : "rows"}
            {counts.updates > 0 && `, ${count(counts.seen)} changes`}
          </span>
          {text === undefined && <Segments label="Form of the result" items={forms} value={form} onChange={setForm} />}
        </>
      }
    >
      {counts.forgotten > 0 && (
        <p className="sql-note">
          The result has {count(counts.forgotten + counts.rows)} rows; the newest {count(MOST_ROWS)} are kept here.
        </p>
      )}
      {counts.unknown > 0 && <p className="sql-note">{count(counts.unknown)} changes take back rows that never came: what is shown may be wrong.</p>}
      {text !== undefined ? (
        <pre className="log" tabIndex={0} role="region" aria-label="Result">
          {text}
        </pre>
      ) : form === "rows" ? (
        <Rows result={result} />
      ) : form === "changes" ? (
        <Changes result={result} />
      ) : (
        <ChartOf columns={result.columns} rows={result.log.rows()} />
      )}
    </Card>
  );
}

/** The text of a statement whose result is one, such as EXPLAIN; undefined: it has rows. */
function onlyText(result: Result): string | undefined {
  if (result.query || result.columns.length !== 1) return undefined;
  const rows = result.log.rows();
  const [value] = rows[0]?.fields ?? [];
  return rows.length === 1 && typeof value === "string" && value.includes("\n") ? value : undefined;
}

function Rows({ result }: { result: Result }): ReactElement {
  const [order, setOrder] = useState({ column: NONE, down: false });
  const [page, setPage] = useState(0);
  const all = result.log.rows();
  if (!all.length) return <Empty title={result.ended ? "No rows" : "No rows yet"}>{!result.ended && "They appear here as the query makes them."}</Empty>;
  const pages = Math.ceil(all.length / PER_PAGE);
  const at = Math.min(page, pages - 1);
  const rows = sorted(all, order.column, order.down).slice(at * PER_PAGE, (at + 1) * PER_PAGE);
  const head = (column: number, name: string, number: boolean) => (
    <th key={column} className={number ? "n" : ""} aria-sort={order.column !== column ? undefined : order.down ? "descending" : "ascending"} title={result.columns[column]?.type.toLowerCase().replaceAll("_", " ")}>
      <button type="button" onClick={() => setOrder({ column, down: order.column === column && !order.down })}>
        {name}
        {order.column === column ? (order.down ? " ↓" : " ↑") : ""}
      </button>
    </th>
  );
  return (
    <>
      <div className="scroll sql-rows" tabIndex={0} role="region" aria-label="Rows of the result">
        <table className="list tapped">
          <thead>
            <tr>
              {head(NONE, "#", true)}
              {result.columns.map((c, i) => head(i, c.name, isNumber(c)))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.no}>
                <td className="n dim">{row.no + 1}</td>
                {row.fields.map((value, i) => (
                  <Value key={i} value={value} column={result.columns[i]} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {pages > 1 && (
        <nav className="row sql-pages" aria-label="Pages of the result">
          <button type="button" className="button" disabled={at === 0} onClick={() => setPage(at - 1)}>
            Previous
          </button>
          <span className="small num">
            Page {count(at + 1)} of {count(pages)}
          </span>
          <button type="button" className="button" disabled={at >= pages - 1} onClick={() => setPage(at + 1)}>
            Next
          </button>
        </nav>
      )}
    </>
  );
}

function Value({ value, column }: { value: unknown; column: Column | undefined }): ReactElement {
  const text = value === null ? "NULL" : shown(value);
  return (
    <td className={`${isNumber(column) ? "n" : ""} ${value === null ? "dim" : ""}`} title={text.length > 40 ? text : undefined}>
      {text}
    </td>
  );
}

function Changes({ result }: { result: Result }): ReactElement {
  const changes = result.log.changes();
  if (!changes.length) return <Empty title="No changes yet" />;
  const counts = result.log.counts();
  return (
    <>
      {counts.seen > MOST_CHANGES && <p className="sql-note">The last {count(MOST_CHANGES)} of {count(counts.seen)} changes are kept.</p>}
      <div className="scroll sql-rows" tabIndex={0} role="region" aria-label="Changes of the result, the newest first">
        <table className="list tapped">
          <thead>
            <tr>
              <th className="n">#</th>
              <th>Change</th>
              {result.columns.map((c, i) => (
                <th key={i} className={isNumber(c) ? "n" : ""}>
                  {c.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {changes.slice(0, PER_PAGE).map((change) => (
              <tr key={change.no}>
                <td className="n dim">{count(change.no)}</td>
                <td>
                  <code className={change.kind === "UPDATE_BEFORE" || change.kind === "DELETE" ? "dim" : ""}>{SIGN[change.kind]}</code>
                </td>
                {change.fields.map((value, i) => (
                  <Value key={i} value={value} column={result.columns[i]} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {changes.length > PER_PAGE && <p className="sql-note">The newest {PER_PAGE} are shown.</p>}
    </>
  );
}

function ChartOf({ columns, rows }: { columns: Column[]; rows: Row[] }): ReactElement {
  const [axes, setAxes] = useState<Axes | undefined>(() => axesOf(columns));
  if (!axes) return <Empty title="Nothing to draw">A chart needs a column with numbers.</Empty>;
  if (!rows.length) return <Empty title="No rows yet" />;
  const few = rows.slice(-CHARTED);
  const chart = chartOf(columns, few, axes);
  const note = [chart.note, rows.length > few.length && `the last ${count(CHARTED)} rows are drawn`].filter(Boolean).join("; ");
  const choice = (label: string, value: number, none: string, fits: (c: Column, i: number) => boolean, onChange: (i: number) => void) => (
    <label className="field">
      <span>{label}</span>
      <select className="input" value={value} onChange={(event) => onChange(Number(event.target.value))}>
        {none && <option value={NONE}>{none}</option>}
        {columns.map((c, i) =>
          fits(c, i) ? (
            <option key={i} value={i}>
              {c.name}
            </option>
          ) : null,
        )}
      </select>
    </label>
  );
  return (
    <div className="stack" style={{ padding: "14px 16px" }}>
      <div className="row">
        {choice("Across", axes.x, "order of arrival", () => true, (x) => setAxes({ ...axes, x }))}
        {choice("Up", axes.y[0] ?? 0, "", isNumber, (y) => setAxes({ ...axes, y: [y] }))}
        {choice("A line for each", axes.by, "nothing", (_, i) => i !== axes.x, (by) => setAxes({ ...axes, by }))}
      </div>
      <Chart title={columns[axes.y[0] ?? 0]?.name ?? ""} note={note} times={chart.times} lines={chart.lines} show={(v) => compact(v)} height={260} {...(chart.labels ? { labels: chart.labels } : {})} />
    </div>
  );
}
