/** Checkpoints and savepoints: charts, the history, and one of them by subtask. */
import { useMemo, type ReactElement } from "react";
import { api, data, useLoaded, type Schemas } from "../../api/client";
import { ago, bytes, moment, span } from "../../lib/format";
import { go, to } from "../../lib/router";
import { Chart } from "../../ui/chart";
import { toast } from "../../ui/dialog";
import { Badge, Card, Empty, Loading, Meter, Pairs, Problem, State, Tile } from "../../ui/parts";

type Job = Schemas["Job"];
type Stats = Schemas["CheckpointingStatistics"];
type Checkpoint = Schemas["Checkpoint"];

export default function CheckpointsTab({ job, checkpoints, chosen }: { job: Job; checkpoints: Stats; chosen: string | undefined }): ReactElement {
  const config = useLoaded(`${job.jid}/checkpoint-config`, () => data(api.GET("/jobs/{job}/checkpoints/config", { params: { path: { job: job.jid } } })));
  const { counts, latest, history } = checkpoints;
  if (!history.length) {
    return (
      <Card>
        <Empty title="No checkpoint yet">
          {config.value?.interval === 0 ? "Periodic checkpoints are off for this job (execution.checkpointing.interval). After a failure it begins anew." : "A checkpoint stores the state of all tasks, so that the job can go on from it after a failure. The first one comes soon."}
        </Empty>
      </Card>
    );
  }
  const last = latest.completed;
  return (
    <div className="stack">
      <div className="tiles">
        <Tile what="Last checkpoint" value={last ? ago(last.latest_ack_timestamp, job.now) : "none"} note={last ? `took ${span(last.end_to_end_duration)}` : "after a failure the job begins anew"} />
        <Tile what="State" value={last ? bytes(last.state_size) : "–"} note={last ? `${bytes(last.checkpointed_size)} written for the last one` : ""} />
        <Tile what="Completed" value={counts.completed} note={counts.in_progress ? `${counts.in_progress} in progress` : `every ${span(config.value?.interval ?? 0)}`} />
        <Tile what="Failed" value={counts.failed} note={`restored ${counts.restored} ${counts.restored === 1 ? "time" : "times"}`} />
      </div>
      <Charts history={history} />
      <History job={job} history={history} chosen={chosen} />
      {chosen && <One job={job} id={chosen} />}
      <div className="grid two">
        <Card title="Restored from">
          {latest.restored ? (
            <Pairs
              of={[
                ["Checkpoint", latest.restored.id],
                ["When", moment(latest.restored.restore_timestamp)],
                ["Path", <code key="p">{latest.restored.external_path ?? "–"}</code>],
              ]}
            />
          ) : (
            <p className="dim">This run began without older state.</p>
          )}
        </Card>
        {config.value && (
          <Card title="Settings">
            <Pairs
              of={[
                ["Guarantee", config.value.mode.replaceAll("_", " ")],
                ["Every", config.value.interval ? span(config.value.interval) : "off"],
                ["Given up after", span(config.value.timeout)],
                ["Pause between", span(config.value.min_pause)],
                ["Barriers overtake records", config.value.unaligned_checkpoints ? "yes (unaligned)" : "no (aligned)"],
                ["Writes", config.value.state_changelog_enabled ? "what has changed (incremental)" : "the whole state"],
                ["Keeps", `the last ${config.value.num_retained}`],
                ["When cancelled", config.value.externalization.delete_on_cancellation ? "deletes them" : "keeps them"],
              ]}
            />
          </Card>
        )}
      </div>
    </div>
  );
}

function Charts({ history }: { history: Checkpoint[] }): ReactElement | null {
  const done = useMemo(() => history.filter((c) => c.status === "COMPLETED").reverse(), [history]);
  if (done.length < 2) return null;
  const times = done.map((_, i) => i);
  const labels = done.map((c) => String(c.id));
  return (
    <div className="grid two">
      <Card>
        <Chart title="Duration" note="from the trigger to the last subtask" times={times} labels={labels} show={span} lines={[{ label: "duration", values: done.map((c) => c.end_to_end_duration), bars: true }]} />
      </Card>
      <Card>
        <Chart
          title="Size"
          times={times}
          labels={labels}
          show={bytes}
          lines={[
            { label: "whole state", values: done.map((c) => c.state_size), fill: true },
            { label: "written", values: done.map((c) => c.checkpointed_size) },
          ]}
        />
      </Card>
    </div>
  );
}

function History({ job, history, chosen }: { job: Job; history: Checkpoint[]; chosen: string | undefined }): ReactElement {
  return (
    <Card title="History" flush>
      <div className="scroll" style={{ maxHeight: 420, overflow: "auto" }} tabIndex={0} role="region" aria-label="Checkpoints">
        <table className="list">
          <thead>
            <tr>
              <th>No.</th>
              <th>State</th>
              <th>Kind</th>
              <th>Triggered</th>
              <th className="n">Duration</th>
              <th className="n">State size</th>
              <th className="n">Written</th>
              <th>Done</th>
              <th>Slowest</th>
              <th>Path</th>
            </tr>
          </thead>
          <tbody>
            {history.map((c) => (
              <tr key={`${c.kind}${c.id}`} className={`link ${String(c.id) === chosen ? "on" : ""}`} onClick={() => go("jobs", job.jid, "checkpoints", c.id)}>
                <td>
                  <a href={to("jobs", job.jid, "checkpoints", c.id)}>{c.id}</a>
                </td>
                <td>
                  <State of={c.status} />
                </td>
                <td className="nowrap">{c.is_savepoint ? <Badge of="info" plain>savepoint</Badge> : c.checkpoint_type === "UNALIGNED_CHECKPOINT" ? "unaligned" : "checkpoint"}</td>
                <td className="nowrap dim small">{moment(c.trigger_timestamp)}</td>
                <td className="n nowrap">{c.end_to_end_duration >= 0 ? span(c.end_to_end_duration) : "…"}</td>
                <td className="n nowrap">{bytes(c.state_size)}</td>
                <td className="n nowrap">{bytes(c.checkpointed_size)}</td>
                <td style={{ minWidth: 80 }}>
                  <Meter share={c.num_acknowledged_subtasks / Math.max(1, c.num_subtasks)} say={`${c.num_acknowledged_subtasks} of ${c.num_subtasks} subtasks`} />
                </td>
                <td className="small dim">
                  <div className="clip" style={{ maxWidth: 240 }} title={c.failure_message ?? slowest(c)}>
                    {c.failure_message ?? slowest(c)}
                  </div>
                </td>
                <td>
                  {c.external_path && (
                    <button type="button" className="button quiet small" onClick={(event) => (event.stopPropagation(), copy(c.external_path ?? ""))} aria-label={`Copy the path of ${c.id}`}>
                      Copy
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function copy(path: string): void {
  navigator.clipboard.writeText(path).then(
    () => toast(`Copied:\n${path}`),
    () => toast(path),
  );
}

function slowest(c: Checkpoint): string {
  const s = c.slowest as { operator?: string; phase?: string; ms?: number } | null;
  return s ? `${s.operator}: ${span(s.ms ?? 0)}, ${s.phase}` : "";
}

/** One checkpoint: each vertex, and the phases of each subtask as bars. */
function One({ job, id }: { job: Job; id: string }): ReactElement {
  const path = { job: job.jid, checkpoint: id };
  const { value, error } = useLoaded(
    `${job.jid}/checkpoint/${id}`,
    async () => {
      const vertices = await Promise.all(
        job.vertices.map(async (v) => ({ vertex: v, details: await data(api.GET("/jobs/{job}/checkpoints/details/{checkpoint}/subtasks/{vertex}", { params: { path: { ...path, vertex: v.id } } })) })),
      );
      return vertices;
    },
    undefined,
  );
  if (error) return <Problem text={error} />;
  if (!value) return <Loading />;
  const longest = Math.max(1, ...value.flatMap((v) => v.details.subtasks.map((s) => (s.className === "completed" ? s.end_to_end_duration : 0))));
  return (
    <Card
      title={`No. ${id} by subtask`}
      end={
        <div className="legend">
          <span><i style={{ background: "var(--idle)" }} /> waits for the barrier</span>
          <span><i style={{ background: "var(--pressure)" }} /> aligns</span>
          <span><i style={{ background: "var(--bad)" }} /> stands still (sync)</span>
          <span><i style={{ background: "var(--busy)" }} /> writes (async)</span>
        </div>
      }
      flush
    >
      <div className="scroll">
        <table className="list">
          <thead>
            <tr>
              <th>Subtask</th>
              <th style={{ minWidth: 180 }}>Phases</th>
              <th className="n">Duration</th>
              <th className="n">Start delay</th>
              <th className="n">Alignment</th>
              <th className="n">Sync</th>
              <th className="n">Async</th>
              <th className="n">State</th>
              <th className="n">Written</th>
            </tr>
          </thead>
          <tbody>
            {value.flatMap(({ vertex, details }) =>
              details.subtasks.map((s) => (
                <tr key={`${vertex.id}${s.index}`}>
                  <td style={{ minWidth: 200 }}>
                    {vertex.name} <span className="dim">({s.index})</span>
                  </td>
                  {s.className === "completed" ? (
                    <>
                      <td>
                        <Phases of={s} longest={longest} />
                      </td>
                      <td className="n nowrap">{span(s.end_to_end_duration)}</td>
                      <td className="n nowrap">{span(s.start_delay)}</td>
                      <td className="n nowrap">{span(s.alignment.duration)}</td>
                      <td className="n nowrap">{span(s.checkpoint.sync)}</td>
                      <td className="n nowrap">{span(s.checkpoint.async)}</td>
                      <td className="n nowrap">{bytes(s.state_size)}</td>
                      <td className="n nowrap">{bytes(s.checkpointed_size)}</td>
                    </>
                  ) : (
                    <td colSpan={8} className="dim">
                      not acknowledged, or it had finished before
                    </td>
                  )}
                </tr>
              )),
            )}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Phases({ of, longest }: { of: Schemas["CompletedSubtask"]; longest: number }): ReactElement {
  const parts: [string, number][] = [
    ["--idle", of.start_delay],
    ["--pressure", of.alignment.duration],
    ["--bad", of.checkpoint.sync],
    ["--busy", of.checkpoint.async],
  ];
  return (
    <div className="meter" style={{ background: "none" }} role="img" aria-label={`start delay ${span(of.start_delay)}, alignment ${span(of.alignment.duration)}, sync ${span(of.checkpoint.sync)}, async ${span(of.checkpoint.async)}`}>
      {parts.map(([colour, ms]) => (
        <i key={colour} style={{ width: `${(100 * ms) / longest}%`, background: `var(${colour})` }} />
      ))}
    </div>
  );
}
