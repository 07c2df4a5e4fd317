/** Logs: followed at their end, searched, and of a vertex's slots. */
import { useEffect, useMemo, useRef, useState, type ReactElement } from "react";
import { api, data, text, useLoaded, type Schemas } from "../api/client";
import { bytes } from "../lib/format";
import { Icon } from "../ui/icons";
import { Empty, Loading, Problem } from "../ui/parts";

const SHOWN = 400_000;

/** A text that grows, such as a log. */
export function LogViewer({ path, label }: { path: string; label: string }): ReactElement {
  const [follow, setFollow] = useState(true);
  const [words, setWords] = useState("");
  const { value, error, again } = useLoaded(path, () => text(path), follow ? 2000 : undefined);
  const end = useRef<HTMLPreElement>(null);
  const shown = useMemo(() => {
    const recent = (value ?? "").slice(-SHOWN);
    if (!words) return recent;
    const wanted = words.toLowerCase();
    return recent
      .split("\n")
      .filter((line) => line.toLowerCase().includes(wanted))
      .join("\n");
  }, [value, words]);
  useEffect(() => {
    if (follow && end.current) end.current.scrollTop = end.current.scrollHeight;
  }, [shown, follow]);
  return (
    <>
      <div className="row" style={{ padding: "8px 16px" }}>
        <input className="input grow" type="search" placeholder="Lines with …" aria-label={`Find in ${label}`} value={words} onChange={(e) => setWords(e.target.value)} />
        <label className="check">
          <input type="checkbox" checked={follow} onChange={(e) => setFollow(e.target.checked)} /> Follow
        </label>
        <button type="button" className="button quiet icon" onClick={again} aria-label="Load again">
          <Icon name="again" />
        </button>
        <a href={`.${path}`} target="_blank" rel="noreferrer" className="small">
          As text
        </a>
      </div>
      {error && <Problem text={error} />}
      {value === undefined && !error ? (
        <Loading />
      ) : (
        <pre ref={end} className="log" tabIndex={0} role="region" aria-label={label}>
          {shown || (words ? "No line matches." : "Nothing has been written yet.")}
        </pre>
      )}
    </>
  );
}

/** The output of the slots in which the subtasks of some vertices run. */
export function LogPart({ job, vertex }: { job: string; vertex: Schemas["JobVertex"] }): ReactElement {
  const places = useLoaded(
    `${job}/${vertex.id}/places`,
    async () => {
      const found = await data(api.GET("/jobs/{job}/vertices/{vertex}", { params: { path: { job, vertex: vertex.id } } }));
      return slotsOf(job, found.subtasks);
    },
    undefined,
  );
  if (places.error) return <Problem text={places.error} />;
  if (!places.value) return <Loading />;
  return <SlotLogs slots={places.value} />;
}

export interface SlotLog {
  manager: string;
  name: string;
  size: number;
  say: string;
}

/** The log files of the slots of these subtasks, the newest of each slot. */
export async function slotsOf(job: string, subtasks: Schemas["Subtask"][]): Promise<SlotLog[]> {
  const found: SlotLog[] = [];
  const managers = [...new Set(subtasks.map((s) => s["taskmanager-id"]))].filter((id) => !id.startsWith("("));
  for (const manager of managers) {
    const { logs } = await data(api.GET("/taskmanagers/{manager}/logs", { params: { path: { manager } } }));
    const allocations = new Map<string, number[]>();
    for (const s of subtasks) {
      if (s["taskmanager-id"] !== manager || !s["allocation-id"]) continue;
      allocations.set(s["allocation-id"], [...(allocations.get(s["allocation-id"]) ?? []), s.subtask]);
    }
    for (const [allocation, indexes] of allocations) {
      for (const log of logs.filter((l) => l.name.startsWith(`${job}.${allocation}-`))) {
        found.push({ manager, name: log.name, size: log.size, say: `subtask ${indexes.join(", ")} on ${manager}` });
      }
    }
  }
  return found;
}

export function SlotLogs({ slots }: { slots: SlotLog[] }): ReactElement {
  const [chosen, setChosen] = useState(0);
  const slot = slots[Math.min(chosen, slots.length - 1)];
  if (!slot) {
    return <Empty title="No output is kept">The slots have ended, or their task manager has removed their output. What your code prints while it runs appears here.</Empty>;
  }
  return (
    <div className="card">
      <div className="row" style={{ padding: "10px 16px 0" }}>
        <label className="field grow">
          <span className="hidden-label">Slot</span>
          <select className="input" value={chosen} onChange={(e) => setChosen(Number(e.target.value))}>
            {slots.map((s, i) => (
              <option key={`${s.manager}${s.name}`} value={i}>
                {s.say} · {bytes(s.size)}
              </option>
            ))}
          </select>
        </label>
      </div>
      <LogViewer key={`${slot.manager}/${slot.name}`} path={`/taskmanagers/${encodeURIComponent(slot.manager)}/logs/${encodeURIComponent(slot.name)}`} label={`Output of ${slot.say}`} />
    </div>
  );
}
