/** Rows as a chart. Pure. */
import type { Line } from "../ui/chart";
import { compared, numberOf, shown } from "../lib/exact";
import type { Row } from "./changelog";

export interface Column {
  name: string;
  /** The root of its type, as the gateway names it. */
  type: string;
}

export interface Charted {
  times: number[];
  /** Undefined: `times` are times (s). */
  labels: string[] | undefined;
  lines: Line[];
  /** What is left out; empty: nothing. */
  note: string;
}

const NUMBERS = new Set(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"]);
const TIMES = new Set(["DATE", "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"]);
export const MOST_LINES = 6;
export const MOST_BARS = 40;
/** The x axis is the order of arrival, and no line is split off. */
export const NONE = -1;

export function isNumber(column: Column | undefined): boolean {
  return column !== undefined && NUMBERS.has(column.type);
}

export function isTime(column: Column | undefined): boolean {
  return column !== undefined && TIMES.has(column.type);
}

export interface Axes {
  x: number;
  y: number[];
  /** The column whose values get a line each. */
  by: number;
}

/** What a chart of these columns shows at first; undefined: they have no number. */
export function axesOf(columns: Column[]): Axes | undefined {
  const time = columns.findIndex(isTime);
  const words = columns.findIndex((c) => !isNumber(c) && !isTime(c));
  const x = time >= 0 ? time : words;
  const y = columns.findIndex((c, i) => isNumber(c) && i !== x);
  return y < 0 ? undefined : { x, y: [y], by: time >= 0 ? words : NONE };
}

/** Seconds of a time as the gateway writes it; a time without a zone counts as UTC. */
export function seconds(value: unknown): number | null {
  if (typeof value !== "string") return null;
  const found = Date.parse(/Z$|T.*[+-]\d\d:\d\d$/.test(value) || !value.includes("T") ? value : `${value}Z`);
  return Number.isNaN(found) ? null : found / 1000;
}

export function chartOf(columns: Column[], rows: Row[], { x, y, by }: Axes): Charted {
  const timed = isTime(columns[x]);
  const notes: string[] = [];
  const points = rows.map((row): { at: unknown; row: Row } => ({ at: x === NONE ? row.no + 1 : timed ? seconds(row.fields[x]) : row.fields[x], row }));
  const known = points.filter((p) => p.at !== null && p.at !== undefined);
  if (known.length < points.length) notes.push(`${points.length - known.length} rows without a value of ${columns[x]?.name ?? "x"} are left out`);
  let places = [...new Map(known.map((p) => [shown(p.at), p.at])).values()];
  if (timed || x === NONE || isNumber(columns[x])) places.sort(compared);
  const plain = !timed;
  if (plain && places.length > MOST_BARS) {
    notes.push(`the last ${MOST_BARS} of ${places.length} values of ${x === NONE ? "the arrival" : (columns[x]?.name ?? "x")} are shown`);
    places = places.slice(-MOST_BARS);
  }
  const index = new Map(places.map((at, i) => [shown(at), i]));
  const lines = new Map<string, Line>();
  let hidden = 0;
  for (const { at, row } of known) {
    const place = index.get(shown(at));
    if (place === undefined) continue;
    for (const column of y) {
      const group = by === NONE ? "" : row.fields[by] === null ? "NULL" : shown(row.fields[by]);
      const label = by === NONE ? (columns[column]?.name ?? "") : y.length > 1 ? `${group} · ${columns[column]?.name}` : group;
      let line = lines.get(label);
      if (!line) {
        if (lines.size >= MOST_LINES) {
          hidden += 1;
          continue;
        }
        line = { label, values: places.map(() => null), ...(plain ? { bars: true } : {}) };
        lines.set(label, line);
      }
      line.values[place] = numberOf(row.fields[column]) ?? null;
    }
  }
  if (hidden) notes.push(`the first ${MOST_LINES} values of ${columns[by]?.name ?? "the column"} have lines, those of ${hidden} rows have none`);
  const found = [...lines.values()];
  // Bars of several lines would hide one another.
  const drawn = plain && found.length > 1 ? found.map((line) => ({ label: line.label, values: line.values })) : found;
  return { times: timed ? (places as number[]) : places.map((_, i) => i), labels: timed ? undefined : places.map(shown), lines: drawn, note: notes.join("; ") };
}
