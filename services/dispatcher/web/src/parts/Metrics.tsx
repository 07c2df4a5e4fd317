/** Any metric of a vertex over time, summed up or by subtask. */
import { useEffect, useMemo, useState, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../api/client";
import { bytes, compact } from "../lib/format";
import { keep, newSeries, type Series } from "../lib/history";
import { Chart } from "../ui/chart";
import { Card, Loading, Problem, Segments } from "../ui/parts";

type How = "subtasks" | "sum" | "range";
const FIRST = ["numRecordsInPerSecond", "numRecordsOutPerSecond", "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond"];
const EVERY_MS = 2000;
const MOST_LINES = 12;

/** Series of a vertex that were followed in this page. */
const followed = new Map<string, Series>();

export function MetricsPart({ job, vertex }: { job: string; vertex: Schemas["JobVertex"] }): ReactElement {
  const path = { job, vertex: vertex.id };
  const names = useLoaded(`${job}/${vertex.id}/names`, () => data(api.GET("/jobs/{job}/vertices/{vertex}/subtasks/metrics", { params: { path } })));
  const [shown, setShown] = useState<string[]>(FIRST);
  const [how, setHow] = useState<How>("subtasks");
  const known = useMemo(() => (names.value ?? []).map((m) => m.id).sort((a, b) => a.localeCompare(b)), [names.value]);
  if (names.error) return <Problem text={names.error} />;
  if (!names.value) return <Loading />;
  const listed = shown.filter((name) => known.includes(name));
  return (
    <div className="stack">
      <div className="row">
        <label className="field grow" style={{ flexDirection: "row", alignItems: "center" }}>
          <span className="hidden-label">Add a metric</span>
          <select className="input grow" value="" onChange={(event) => event.target.value && setShown([event.target.value, ...listed.filter((n) => n !== event.target.value)])}>
            <option value="">Add one of {known.length} metrics …</option>
            {known.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Segments
          label="How"
          items={[
            { key: "subtasks", text: "By subtask" },
            { key: "sum", text: "Sum" },
            { key: "range", text: "Lowest, mean, highest" },
          ]}
          value={how}
          onChange={setHow}
        />
      </div>
      <Charts key={how} job={job} vertex={vertex} names={listed} how={how} onRemove={(name) => setShown(listed.filter((n) => n !== name))} />
    </div>
  );
}

interface ChartsProps {
  job: string;
  vertex: Schemas["JobVertex"];
  names: string[];
  how: How;
  onRemove: (name: string) => void;
}

function Charts({ job, vertex, names, how, onRemove }: ChartsProps): ReactElement {
  const key = `${job}/${vertex.id}/${how}`;
  const [, turn] = useState(0);
  const [error, setError] = useState<string>();
  const wanted = names.join(",");
  useEffect(() => {
    const series = followed.get(key) ?? newSeries();
    followed.set(key, series);
    let over = false;
    let timer: number | undefined;
    const run = async () => {
      try {
        if (wanted) keep(series, Math.floor(Date.now() / 1000), await read(job, vertex, wanted.split(","), how));
        if (!over) setError(undefined);
      } catch (problem) {
        if (!over) setError((problem as Error).message);
      }
      if (over) return;
      turn((n) => n + 1);
      timer = window.setTimeout(() => void run(), EVERY_MS);
    };
    void run();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [key, wanted]);
  const series = followed.get(key) ?? newSeries();
  return (
    <>
      {error && <Problem text={error} />}
      <p className="dim small">Values are collected while this page is open, every two seconds.</p>
      <div className="grid two">
        {names.map((name) => {
          const lines = Object.entries(series.values).filter(([line]) => line.startsWith(`${name}\n`));
          return (
            <Card key={name}>
              <div className="row" style={{ justifyContent: "flex-end", height: 0, position: "relative", top: 4, zIndex: 2 }}>
                <button type="button" className="button quiet small" style={{ minHeight: 24, padding: "0 8px" }} onClick={() => onRemove(name)} aria-label={`Remove ${name}`}>
                  ×
                </button>
              </div>
              <Chart title={name} times={series.times} height={130} show={(v) => (/[bB]ytes/.test(name) ? bytes(v) : compact(v))} lines={lines.slice(0, MOST_LINES).map(([line, values]) => ({ label: line.slice(name.length + 1), values }))} />
              {lines.length > MOST_LINES && <p className="dim small">The first {MOST_LINES} of {lines.length} subtasks. The range shows all.</p>}
            </Card>
          );
        })}
      </div>
    </>
  );
}

/** `NAME\nLINE` → value. */
async function read(job: string, vertex: Schemas["JobVertex"], names: string[], how: How): Promise<Record<string, number | null>> {
  const path = { job, vertex: vertex.id };
  const found: Record<string, number | null> = {};
  if (how === "subtasks") {
    const get = names.flatMap((name) => Array.from({ length: vertex.parallelism }, (_, i) => `${i}.${name}`)).join(",");
    for (const { id, value } of await data(api.GET("/jobs/{job}/vertices/{vertex}/metrics", { params: { path, query: { get } } }))) {
      const dot = id.indexOf(".");
      found[`${id.slice(dot + 1)}\n${id.slice(0, dot)}`] = value === null ? null : Number(value);
    }
    return found;
  }
  const agg = how === "sum" ? "sum" : "min,avg,max";
  const query = { get: names.join(","), agg };
  for (const metric of await data(api.GET("/jobs/{job}/vertices/{vertex}/subtasks/metrics", { params: { path, query } }))) {
    for (const [of, text] of [["sum", "sum"], ["min", "lowest"], ["avg", "mean"], ["max", "highest"]] as const) {
      if (agg.includes(of)) found[`${metric.id}\n${text}`] = metric[of] ?? null;
    }
  }
  return found;
}
