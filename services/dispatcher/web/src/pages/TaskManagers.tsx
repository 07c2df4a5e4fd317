/** All task managers with their slots. */
import type { ReactElement } from "react";
import type { Schemas } from "../api/client";
import { useTopic } from "../api/live";
import { bytes, span } from "../lib/format";
import { to } from "../lib/router";
import { Card, Empty, Loading, Meter, Tile } from "../ui/parts";

type Manager = Schemas["TaskManager"];

interface Slot {
  index: number;
  state: string;
  job_id: string | null;
  allocation_id: string | null;
  pid: number | null;
  details: { rss_bytes?: number; cpu_seconds?: number; cpu_share?: number; silent_ms?: number };
}

export function slotsOf(manager: Manager): Slot[] {
  return manager.slots as unknown as Slot[];
}

/** Memory (bytes) and processor use (cores) of a task manager with its slots; null: not known. */
export function usage(manager: Manager): { rss: number; cores: number | null } {
  const own = manager.details as { rss_bytes?: number; cpu_share?: number };
  const slots = slotsOf(manager);
  const rss = slots.reduce((sum, s) => sum + (s.details.rss_bytes ?? 0), own.rss_bytes ?? 0);
  const shares = [own.cpu_share, ...slots.filter((s) => s.pid).map((s) => s.details.cpu_share)].filter((x): x is number => typeof x === "number");
  return { rss, cores: shares.length ? shares.reduce((a, b) => a + b, 0) : null };
}

export function TaskManagersPage(): ReactElement {
  const { value } = useTopic("taskmanagers");
  if (!value) return <Loading />;
  const managers = value.taskmanagers;
  const slots = managers.reduce((n, m) => n + m.slotsNumber, 0);
  const free = managers.reduce((n, m) => n + m.freeSlots, 0);
  const rss = managers.reduce((n, m) => n + usage(m).rss, 0);
  const cores = managers.reduce((n, m) => n + (usage(m).cores ?? 0), 0);
  return (
    <div className="stack">
      <div className="page-head" style={{ marginBottom: 0 }}>
        <div>
          <h1>Task managers</h1>
          <p className="dim">Processes that run the tasks of jobs. Each offers slots; a slot is a process of its own for one job.</p>
        </div>
      </div>
      <div className="tiles">
        <Tile what="Task managers" value={managers.length} />
        <Tile what="Slots in use" value={<>{slots - free} <small>of {slots}</small></>} />
        <Tile what="Memory of their processes" value={bytes(rss)} />
        <Tile what="Processor use" value={<>{cores.toFixed(2)} <small>cores</small></>} />
      </div>
      {managers.length === 0 ? (
        <Card>
          <Empty title="No task manager is registered">
            Start one: <code>python -m penstock_services.taskmanager</code>. Until then, jobs wait for slots.
          </Empty>
        </Card>
      ) : (
        <Card flush title="All">
          <div className="scroll">
            <table className="list">
              <thead>
                <tr>
                  <th>Task manager</th>
                  <th>Slots</th>
                  <th className="n">Free</th>
                  <th className="n">Memory</th>
                  <th style={{ minWidth: 130 }}>Processor</th>
                  <th className="n">Machine</th>
                  <th className="n">Last heard</th>
                </tr>
              </thead>
              <tbody>
                {managers.map((m) => (
                  <Line key={m.id} manager={m} />
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
    </div>
  );
}

function Line({ manager }: { manager: Manager }): ReactElement {
  const { rss, cores } = usage(manager);
  const machine = manager.hardware.cpuCores;
  return (
    <tr>
      <td>
        <a href={to("taskmanagers", manager.id)}>{manager.id}</a>
        <div className="dim small">
          {manager.host}, process {manager.pid}
        </div>
      </td>
      <td>
        <Slots manager={manager} />
      </td>
      <td className="n">{manager.freeSlots}</td>
      <td className="n nowrap">{bytes(rss)}</td>
      <td>
        {cores === null ? (
          <span className="dim">not known yet</span>
        ) : (
          <div className="row" style={{ flexWrap: "nowrap" }}>
            <div className="grow">
              <Meter share={cores / Math.max(1, machine)} say={`${cores.toFixed(2)} of ${machine} cores`} />
            </div>
            <span className="small nowrap">{cores.toFixed(2)} cores</span>
          </div>
        )}
      </td>
      <td className="n nowrap small dim">
        {machine} cores, {bytes(manager.hardware.physicalMemory)}
      </td>
      <td className="n nowrap">{span(Math.max(0, Date.now() - manager.timeSinceLastHeartbeat))}</td>
    </tr>
  );
}

export function Slots({ manager }: { manager: Manager }): ReactElement {
  return (
    <div className="slots">
      {slotsOf(manager).map((slot) =>
        slot.job_id ? (
          <a key={slot.index} className={slot.state} href={to("jobs", slot.job_id)} title={`slot ${slot.index}: ${slot.state}`} aria-label={`Slot ${slot.index}, ${slot.state}, job ${slot.job_id}`} />
        ) : (
          <span key={slot.index} className={slot.state} title={`slot ${slot.index}: ${slot.state}`} />
        ),
      )}
    </div>
  );
}
