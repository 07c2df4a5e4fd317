/** One task manager: slots, metrics, logs and stacks. */
import { useEffect, useState, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../api/client";
import { useTopic } from "../api/live";
import { bytes, moment, span } from "../lib/format";
import { keep, newSeries, type Series } from "../lib/history";
import { to } from "../lib/router";
import { LogViewer } from "../parts/LogViewer";
import { Chart } from "../ui/chart";
import { Badge, Card, Empty, Loading, Problem, Tabs, Tile } from "../ui/parts";
import { slotsOf, usage } from "./TaskManagers";

type Manager = Schemas["TaskManager"];
const TABS = [
  ["slots", "Slots"],
  ["metrics", "Metrics"],
  ["logs", "Logs"],
  ["stdout", "Output"],
  ["threads", "Stacks"],
] as const;

const histories = new Map<string, Series>();

export function TaskManagerPage({ id, tab, file }: { id: string; tab: string; file: string | undefined }): ReactElement {
  const { value } = useTopic("taskmanagers");
  if (!value) return <Loading />;
  const manager = value.taskmanagers.find((m) => m.id === id);
  const crumb = (
    <div className="crumb">
      <a href={to("taskmanagers")}>Task managers</a>
    </div>
  );
  if (!manager) {
    return (
      <>
        {crumb}
        <Card>
          <Empty title="This task manager is not registered">It has ended or cannot be reached: {id}</Empty>
        </Card>
      </>
    );
  }
  return (
    <>
      <div className="page-head">
        <div className="grow">
          {crumb}
          <h1>{manager.id}</h1>
          <div className="dim small">
            {manager.host}, process {manager.pid}, data port {manager.dataPort}
          </div>
        </div>
      </div>
      <Tabs label="About the task manager" current={tab} items={TABS.map(([key, text]) => ({ key, text, href: to("taskmanagers", id, key) }))} />
      <Part manager={manager} tab={tab} file={file} />
    </>
  );
}

function Part({ manager, tab, file }: { manager: Manager; tab: string; file: string | undefined }): ReactElement {
  const base = `/taskmanagers/${encodeURIComponent(manager.id)}`;
  switch (tab) {
    case "metrics":
      return <MetricsTab manager={manager} />;
    case "logs":
      return <Files manager={manager.id} base={base} file={file} />;
    case "stdout":
      return (
        <Card title="What its slots print" flush>
          <LogViewer path={`${base}/stdout`} label="Output of the slots" />
        </Card>
      );
    case "threads":
      return <Threads manager={manager.id} />;
    default:
      return <SlotTable manager={manager} />;
  }
}

function SlotTable({ manager }: { manager: Manager }): ReactElement {
  const { value } = useTopic("overview");
  const names = new Map(value?.jobs.map((job) => [job.jid, job.name]));
  const { rss, cores } = usage(manager);
  return (
    <div className="stack">
      <div className="tiles">
        <Tile what="Slots in use" value={<>{manager.slotsNumber - manager.freeSlots} <small>of {manager.slotsNumber}</small></>} />
        <Tile what="Memory" value={bytes(rss)} note={`machine: ${bytes(manager.hardware.physicalMemory)}`} />
        <Tile what="Processor use" value={cores === null ? "–" : <>{cores.toFixed(2)} <small>cores</small></>} note={`machine: ${manager.hardware.cpuCores} cores`} />
        <Tile what="Last heard" value={span(Math.max(0, Date.now() - manager.timeSinceLastHeartbeat))} note="ago" />
      </div>
      <Card title="Slots" flush>
        <div className="scroll">
          <table className="list">
            <thead>
              <tr>
                <th className="n">No.</th>
                <th>State</th>
                <th>Job</th>
                <th className="n">Process</th>
                <th className="n">Memory</th>
                <th className="n">Processor</th>
                <th className="n">CPU time</th>
                <th className="n">Last report</th>
              </tr>
            </thead>
            <tbody>
              {slotsOf(manager).map((slot) => (
                <tr key={slot.index}>
                  <td className="n">{slot.index}</td>
                  <td>
                    <Badge of={slot.state === "active" ? "ok" : slot.state === "allocated" ? "warn" : ""}>{slot.state}</Badge>
                  </td>
                  <td>{slot.job_id ? <a href={to("jobs", slot.job_id)}>{names.get(slot.job_id) ?? slot.job_id}</a> : <span className="dim">–</span>}</td>
                  <td className="n">{slot.pid ?? "–"}</td>
                  <td className="n nowrap">{slot.details.rss_bytes ? bytes(slot.details.rss_bytes) : "–"}</td>
                  <td className="n nowrap">{slot.details.cpu_share === undefined ? "–" : `${Math.round(100 * slot.details.cpu_share)} %`}</td>
                  <td className="n nowrap">{slot.details.cpu_seconds === undefined ? "–" : span(1000 * slot.details.cpu_seconds)}</td>
                  <td className="n nowrap">{slot.details.silent_ms === undefined ? "–" : `${span(slot.details.silent_ms)} ago`}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Card>
    </div>
  );
}

function MetricsTab({ manager }: { manager: Manager }): ReactElement {
  const series = histories.get(manager.id) ?? newSeries();
  histories.set(manager.id, series);
  const [, turn] = useState(0);
  useEffect(() => {
    const { rss, cores } = usage(manager);
    const own = manager.details as { rss_bytes?: number };
    keep(series, Math.floor(Date.now() / 1000), { rss, cores, own: own.rss_bytes ?? null, used: manager.slotsNumber - manager.freeSlots });
    turn((n) => n + 1);
  }, [manager, series]);
  const { value } = useLoaded(`${manager.id}/metrics`, () => load(manager.id), 3000);
  const of = (name: string) => series.values[name] ?? [];
  return (
    <div className="stack">
      <p className="dim small">Values are collected while this page is open.</p>
      <div className="grid two">
        <Card>
          <Chart
            title="Memory"
            note="resident bytes of its processes"
            times={series.times}
            show={bytes}
            lines={[
              { label: "all", values: of("rss"), fill: true },
              { label: "the task manager itself", values: of("own") },
            ]}
          />
        </Card>
        <Card>
          <Chart title="Processor" note="cores in use" times={series.times} show={(v) => v.toFixed(2)} lines={[{ label: "cores", values: of("cores"), fill: true }]} />
        </Card>
      </div>
      {value && (
        <Card title="All metrics" flush>
          <div className="scroll">
            <table className="list">
              <tbody>
                {value.map((m) => (
                  <tr key={m.id}>
                    <td>
                      <code>{m.id}</code>
                    </td>
                    <td className="n">{/Memory|[bB]ytes/.test(m.id) ? bytes(Number(m.value)) : m.value}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
    </div>
  );
}

async function load(manager: string) {
  const path = { manager };
  const names = (await data(api.GET("/taskmanagers/{manager}/metrics", { params: { path } }))).map((m) => m.id);
  return data(api.GET("/taskmanagers/{manager}/metrics", { params: { path, query: { get: names.join(",") } } }));
}

function Files({ manager, base, file }: { manager: string; base: string; file: string | undefined }): ReactElement {
  const { value, error } = useLoaded(`${manager}/logs`, () => data(api.GET("/taskmanagers/{manager}/logs", { params: { path: { manager } } })), 5000);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const files = [...value.logs].reverse();
  const chosen = file ?? files.find((f) => f.name === "taskmanager.log")?.name ?? files[0]?.name;
  return (
    <div className="stack">
      {chosen && (
        <Card title={chosen} flush>
          <LogViewer key={chosen} path={`${base}/logs/${encodeURIComponent(chosen)}`} label={chosen} />
        </Card>
      )}
      <Card title="Files" flush>
        <div className="scroll">
          <table className="list">
            <tbody>
              {files.map((f) => (
                <tr key={f.name} className={f.name === chosen ? "on" : ""}>
                  <td>
                    <a href={to("taskmanagers", manager, "logs", f.name)}>{f.name}</a>
                  </td>
                  <td className="n nowrap">{bytes(f.size)}</td>
                  <td className="n nowrap dim small">{moment(f.mtime)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Card>
    </div>
  );
}

function Threads({ manager }: { manager: string }): ReactElement {
  const { value, error, again } = useLoaded(`${manager}/threads`, () => data(api.GET("/taskmanagers/{manager}/thread-dump", { params: { path: { manager } } })));
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  return (
    <Card
      title="Stacks of all threads"
      end={
        <button type="button" className="button" onClick={again}>
          Look again
        </button>
      }
    >
      <div className="stack">
        {value.threadInfos.map((thread) => (
          <details key={thread.threadName} open={value.threadInfos.length < 4}>
            <summary>{thread.threadName}</summary>
            <pre className="trace" tabIndex={0} style={{ marginTop: 6 }}>
              {thread.stringifiedThreadInfo}
            </pre>
          </details>
        ))}
      </div>
    </Card>
  );
}
