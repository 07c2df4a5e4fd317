/** What may be done with a job. Each dialog says what will happen. */
import { useState, type ReactElement } from "react";
import { api, data, type Schemas } from "../api/client";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icons";
import { bytes } from "../lib/format";
import { go } from "../lib/router";

type Job = Schemas["Job"];
type Kind = "savepoint" | "checkpoint" | "stop" | "cancel" | "restore";
const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);

export function JobActions({ job, checkpoints }: { job: Job; checkpoints: Schemas["CheckpointingStatistics"] }): ReactElement {
  const [kind, setKind] = useState<Kind>();
  const close = () => setKind(undefined);
  const over = ENDED.has(job.state);
  return (
    <>
      {!over && (
        <>
          <button type="button" className="button" onClick={() => setKind("savepoint")}>
            <Icon name="save" /> Savepoint
          </button>
          <button type="button" className="button" onClick={() => setKind("stop")}>
            <Icon name="stop" /> Stop
          </button>
          <button type="button" className="button bad" onClick={() => setKind("cancel")}>
            Cancel
          </button>
        </>
      )}
      {over && (
        <button type="button" className="button" onClick={() => setKind("restore")}>
          <Icon name="play" /> Start again
        </button>
      )}
      {kind === "savepoint" && <Savepoint job={job} onClose={close} />}
      {kind === "stop" && <Stop job={job} onClose={close} />}
      {kind === "cancel" && <Cancel job={job} checkpoints={checkpoints} onClose={close} />}
      {kind === "restore" && <Restore job={job} checkpoints={checkpoints} onClose={close} />}
    </>
  );
}

/** Waits until a savepoint or checkpoint is stored; what became of it. */
async function outcome(job: string, trigger: string): Promise<string> {
  for (;;) {
    const found = await data(api.GET("/jobs/{job}/savepoints/{trigger}", { params: { path: { job, trigger } } }));
    if (found.status.id === "COMPLETED") {
      const operation = found.operation as { location?: string; "failure-cause"?: unknown } | null;
      if (operation?.location) return operation.location;
      throw new Error(causeOf(operation?.["failure-cause"]));
    }
    await new Promise((done) => setTimeout(done, 400));
  }
}

function causeOf(cause: unknown): string {
  const found = cause as { "stack-trace"?: string; message?: string } | undefined;
  return found?.["stack-trace"] ?? found?.message ?? "It failed, and no reason is known.";
}

function Folder(): ReactElement {
  return (
    <label className="field">
      <span>Folder or URL</span>
      <input className="input" name="folder" placeholder="as execution.checkpointing.savepoint-dir says" />
      <small>A folder of the cluster's store, an absolute path, or a URL. Empty: the configured folder.</small>
    </label>
  );
}

function folderOf(form: FormData): string | null {
  return String(form.get("folder") ?? "").trim() || null;
}

function Savepoint({ job, onClose }: { job: Job; onClose: () => void }): ReactElement {
  return (
    <Dialog
      title={`Take a savepoint of “${job.name}”`}
      will={["The whole state of the job is written once, consistent across all its tasks.", "The job runs on while that happens.", "You can start this job, or a changed version of it, from the savepoint. It stays until you delete it."]}
      confirm="Take savepoint"
      onClose={onClose}
      run={async (form) => {
        const body = { "target-directory": folderOf(form) } as never;
        const asked = await data(api.POST("/jobs/{job}/savepoints", { params: { path: { job: job.jid } }, body }));
        return `The savepoint is stored:\n${await outcome(job.jid, asked["request-id"])}`;
      }}
    >
      <Folder />
    </Dialog>
  );
}

function Stop({ job, onClose }: { job: Job; onClose: () => void }): ReactElement {
  return (
    <Dialog
      title={`Stop “${job.name}” with a savepoint`}
      will={["Sources stop reading; what was read is processed and written.", "A savepoint of the whole state is stored. Then the job ends as FINISHED, and its slots become free.", "You can start it again from the savepoint: no record is lost, and none is processed twice."]}
      confirm="Stop the job"
      onClose={onClose}
      run={async (form) => {
        const body = { targetDirectory: folderOf(form), drain: form.get("drain") === "on" } as never;
        const asked = await data(api.POST("/jobs/{job}/stop", { params: { path: { job: job.jid } }, body }));
        return `The job has stopped. Its savepoint:\n${await outcome(job.jid, asked["request-id"])}`;
      }}
    >
      <Folder />
      <label className="check">
        <input type="checkbox" name="drain" />
        <span>
          Bring event time to its end first <small className="dim">(drain: all windows fire, even unfinished ones. Choose this only if the job is not to be started again.)</small>
        </span>
      </label>
    </Dialog>
  );
}

function Cancel({ job, checkpoints, onClose }: { job: Job; checkpoints: Schemas["CheckpointingStatistics"]; onClose: () => void }): ReactElement {
  const last = checkpoints.latest.completed;
  return (
    <Dialog
      title={`Cancel “${job.name}”`}
      will={[
        "The job ends at once, as CANCELED; its slots become free.",
        "No savepoint is taken. What was processed since the last checkpoint is lost for a later start.",
        last ? `Its last checkpoint has ${bytes(last.state_size)}. Whether it is kept says execution.checkpointing.externalized-checkpoint-retention.` : "It has no completed checkpoint.",
        "To be able to go on later, stop the job with a savepoint instead.",
      ]}
      confirm="Cancel the job"
      bad
      onClose={onClose}
      run={async () => {
        await data(api.PATCH("/jobs/{job}", { params: { path: { job: job.jid }, query: { mode: "cancel" } } }));
        return `“${job.name}” is being cancelled.`;
      }}
    />
  );
}

function Restore({ job, checkpoints, onClose }: { job: Job; checkpoints: Schemas["CheckpointingStatistics"]; onClose: () => void }): ReactElement {
  const places = checkpoints.history.filter((c) => c.status === "COMPLETED" && c.external_path);
  return (
    <Dialog
      title={`Start “${job.name}” again`}
      will={["You go to the page for a new job, where you give its SQL or program: the cluster keeps no source text of ended jobs.", "The path that you choose here is filled in as execution.state-recovery.path, so that the job goes on from that state."]}
      confirm="Go on"
      onClose={onClose}
      run={async (form) => {
        sessionStorage.setItem("penstock.restore", JSON.stringify({ name: job.name, path: String(form.get("path") ?? "") }));
        go("submit");
      }}
    >
      <label className="field">
        <span>From</span>
        <select className="input" name="path">
          {places.map((c) => (
            <option key={`${c.kind}${c.id}`} value={c.external_path ?? ""}>
              {c.is_savepoint ? "Savepoint" : "Checkpoint"} {c.id} · {bytes(c.state_size)} · {new Date(c.trigger_timestamp).toLocaleString("en-GB")}
            </option>
          ))}
          <option value="">Nothing: begin anew</option>
        </select>
      </label>
    </Dialog>
  );
}
