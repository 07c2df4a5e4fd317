/** What the stream said about jobs in the last quarter of an hour, for charts. */
import { onLive } from "../api/live";
import type { Schemas } from "../api/client";

const KEPT = 900;

export interface Series {
  times: number[];
  values: Record<string, (number | null)[]>;
}

const jobs = new Map<string, Series>();

function keep(series: Series, at: number, now: Record<string, number | null>): void {
  if (series.times[series.times.length - 1] === at) return;
  series.times.push(at);
  for (const name of Object.keys(now)) {
    series.values[name] ??= new Array<number | null>(series.times.length - 1).fill(null);
  }
  for (const [name, values] of Object.entries(series.values)) values.push(now[name] ?? null);
  if (series.times.length > KEPT) {
    series.times.shift();
    for (const values of Object.values(series.values)) values.shift();
  }
}

/** Names: `VERTEX.in`, `.out`, `.busy`, `.pressure` (percent), `.lag` (s behind the clock). */
function remember(topic: string, value: unknown): void {
  const live = value as Partial<Schemas["LiveJob"]>;
  if (!topic.startsWith("job:") || !live.job) return;
  const job = live.job;
  const series = jobs.get(job.jid) ?? { times: [], values: {} };
  jobs.set(job.jid, series);
  const now: Record<string, number | null> = {};
  for (const vertex of job.vertices) {
    const m = vertex.metrics;
    now[`${vertex.id}.in`] = m["read-records-per-second"];
    now[`${vertex.id}.out`] = m["write-records-per-second"];
    now[`${vertex.id}.busy`] = 100 * m["busy-ratio"];
    now[`${vertex.id}.pressure`] = 100 * m["backpressure-ratio"];
    const behind = m.watermark ? job.now - m.watermark : null;
    now[`${vertex.id}.lag`] = behind !== null && behind >= 0 ? behind / 1000 : null;
  }
  keep(series, Math.floor(job.now / 1000), now);
}

export function startHistory(): void {
  onLive(remember);
}

export function historyOf(job: string): Series | undefined {
  return jobs.get(job);
}

/** A series of values that a part of the page keeps by itself. */
export function newSeries(): Series {
  return { times: [], values: {} };
}

export { keep };
