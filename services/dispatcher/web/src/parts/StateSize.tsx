/** The state of a vertex: how much each subtask keeps, now and in its last checkpoint. */
import type { ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../api/client";
import { bytes, count } from "../lib/format";
import { Empty, Loading, Problem } from "../ui/parts";

const GAUGE = /\.(stateBytes|num(Keys|Rows|Sessions)InState|numRowsOnDisk.*|numKeysOnDisk|numOpenWindows|numVersions|numCached\w+)$/;

export function StatePart({ job, vertex }: { job: string; vertex: Schemas["JobVertex"] }): ReactElement {
  const path = { job, vertex: vertex.id };
  const { value, error } = useLoaded(`${job}/${vertex.id}/state`, () => load(path), 3000);
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const names = [...new Set(value.gauges.map((g) => g.name))];
  if (!names.length && !value.checkpoint.length) {
    return <Empty title="No state is known">Its operators keep no keyed state, or no checkpoint has completed yet.</Empty>;
  }
  return (
    <div className="stack">
      {names.length > 0 && (
        <div className="scroll card">
          <table className="list">
            <thead>
              <tr>
                <th>State now</th>
                {Array.from({ length: vertex.parallelism }, (_, i) => (
                  <th key={i} className="n">
                    Subtask {i}
                  </th>
                ))}
                <th className="n">Sum</th>
              </tr>
            </thead>
            <tbody>
              {names.map((name) => {
                const mine = value.gauges.filter((g) => g.name === name);
                const show = /[bB]ytes/.test(name) ? bytes : count;
                return (
                  <tr key={name}>
                    <td style={{ minWidth: 180 }}>{name}</td>
                    {Array.from({ length: vertex.parallelism }, (_, i) => (
                      <td key={i} className="n nowrap">
                        {show(mine.find((g) => g.subtask === i)?.value ?? 0)}
                      </td>
                    ))}
                    <td className="n nowrap">{show(mine.reduce((sum, g) => sum + g.value, 0))}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {value.checkpoint.length > 0 && (
        <div className="scroll card">
          <table className="list">
            <thead>
              <tr>
                <th>In checkpoint {value.id}</th>
                <th className="n">Whole state</th>
                <th className="n">Written for it</th>
              </tr>
            </thead>
            <tbody>
              {value.checkpoint.map((s) => (
                <tr key={s.index}>
                  <td>Subtask {s.index}</td>
                  <td className="n">{bytes(s.state)}</td>
                  <td className="n">{bytes(s.written)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p className="dim small">Which keys are the largest is not measured.</p>
    </div>
  );
}

async function load(path: { job: string; vertex: string }) {
  const names = (await data(api.GET("/jobs/{job}/vertices/{vertex}/metrics", { params: { path } }))).map((m) => m.id).filter((id) => GAUGE.test(id));
  const values = names.length ? await data(api.GET("/jobs/{job}/vertices/{vertex}/metrics", { params: { path, query: { get: names.join(",") } } })) : [];
  const gauges = values.map((m) => {
    const dot = m.id.indexOf(".");
    return { subtask: Number(m.id.slice(0, dot)), name: m.id.slice(dot + 1), value: Number(m.value) };
  });
  const { job, vertex } = path;
  const all = await data(api.GET("/jobs/{job}/checkpoints", { params: { path: { job } } }));
  const last = all.latest.completed;
  if (!last) return { gauges, id: 0, checkpoint: [] };
  const details = await data(api.GET("/jobs/{job}/checkpoints/details/{checkpoint}/subtasks/{vertex}", { params: { path: { job, checkpoint: String(last.id), vertex } } }));
  const checkpoint = details.subtasks.flatMap((s) => (s.className === "completed" ? [{ index: s.index, state: s.state_size, written: s.checkpointed_size }] : []));
  return { gauges, id: last.id, checkpoint };
}
