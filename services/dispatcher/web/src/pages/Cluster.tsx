/** The processes of the cluster, its configuration, and the dispatcher's own log and stacks. */
import type { ReactElement } from "react";
import { api, data, useLoaded } from "../api/client";
import { to } from "../lib/router";
import { LogViewer } from "../parts/LogViewer";
import { Badge, Card, Loading, Problem, Tabs } from "../ui/parts";
import { OptionList } from "./job/Configuration";

interface Process {
  role: string;
  id: string;
  pid: number;
  host: string;
  state: string;
}

const ROLES: Record<string, string> = {
  dispatcher: "takes jobs, serves this page and the REST API",
  jobmanager: "leads jobs: schedules tasks, triggers checkpoints, restarts after failures",
  resourcemanager: "knows all slots and gives them to jobs",
  taskmanager: "runs tasks in its slots",
};

export function ClusterPage({ tab }: { tab: string }): ReactElement {
  const items = [
    { key: "processes", text: "Processes" },
    { key: "configuration", text: "Configuration" },
    { key: "log", text: "Dispatcher's log" },
    { key: "threads", text: "Dispatcher's stacks" },
  ].map((item) => ({ ...item, href: to("cluster", item.key) }));
  return (
    <>
      <div className="page-head">
        <h1>Cluster</h1>
      </div>
      <Tabs label="About the cluster" items={items} current={tab} />
      {tab === "configuration" ? <Configuration /> : tab === "log" ? <Log /> : tab === "threads" ? <Threads /> : <Processes />}
    </>
  );
}

function Processes(): ReactElement {
  const { value, error } = useLoaded("cluster/info", async () => (await data(api.GET("/cluster/info"))) as unknown as { cluster: string; version: string; processes: Process[] }, 3000);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  return (
    <Card title={`Cluster “${value.cluster}”, Penstock ${value.version}`} flush>
      <div className="scroll">
        <table className="list">
          <thead>
            <tr>
              <th>Role</th>
              <th>Id</th>
              <th>State</th>
              <th>Host</th>
              <th className="n">Process</th>
            </tr>
          </thead>
          <tbody>
            {value.processes.map((p) => (
              <tr key={p.id}>
                <td>
                  <b style={{ fontWeight: 600 }}>{p.role}</b>
                  <div className="dim small">{ROLES[p.role]}</div>
                </td>
                <td className="nowrap">{p.role === "taskmanager" ? <a href={to("taskmanagers", p.id)}>{p.id}</a> : p.id}</td>
                <td className="nowrap">
                  <Badge of={p.state === "standby" ? "" : "ok"}>{p.state}</Badge>
                </td>
                <td>{p.host}</td>
                <td className="n">{p.pid}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Configuration(): ReactElement {
  const { value, error } = useLoaded("cluster/config", () => data(api.GET("/jobmanager/config")));
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  return <OptionList title="What the cluster sets (secrets are hidden)" options={value.map((o) => ({ key: o.key, value: String(o.value) }))} empty="Every option has its default." />;
}

function Log(): ReactElement {
  return (
    <Card title="Log of the dispatcher that answers, the last MiB" flush>
      <LogViewer path="/jobmanager/log" label="Log of the dispatcher" />
    </Card>
  );
}

function Threads(): ReactElement {
  const { value, error } = useLoaded("cluster/threads", () => data(api.GET("/jobmanager/thread-dump")));
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  return (
    <Card title="Stacks of all threads">
      <div className="stack">
        {value.threadInfos.map((thread) => (
          <details key={thread.threadName}>
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
