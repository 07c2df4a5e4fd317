/** A new job: SQL, or a Python program, with what will happen. */
import { useState, type ReactElement } from "react";
import { api, data, type Schemas } from "../api/client";
import { go, to } from "../lib/router";
import { toast } from "../ui/dialog";
import { Card, Problem, Segments } from "../ui/parts";

type Kind = "sql" | "python";

const EXAMPLES: Record<Kind, string> = {
  sql: `CREATE TABLE clicks (page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.page.length' = '1');

CREATE TABLE counts (w TIMESTAMP(3), page STRING, n BIGINT) WITH ('connector' = 'print');

INSERT INTO counts
SELECT window_start, page, COUNT(*)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, page;
`,
  python: `from penstock.api import *

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection(range(1000), Types.LONG())
numbers.map(lambda n: n * n, Types.LONG()).print()
env.execute("squares")
`,
};

/** `key: value` or `key = value`, a line each. Throws an Error that names the first line it does not understand. */
export function optionsOf(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const line of text.split("\n").map((l) => l.trim())) {
    if (!line || line.startsWith("#")) continue;
    const match = /^([\w.-]+)\s*[:=]\s*(.*)$/.exec(line);
    if (!match) throw new Error(`Not an option: “${line}”. Write key: value, one a line.`);
    found[match[1] ?? ""] = (match[2] ?? "").replace(/^(['"])(.*)\1$/, "$2");
  }
  return found;
}

function remembered(): { name: string; path: string } {
  try {
    const found = sessionStorage.getItem("penstock.restore");
    sessionStorage.removeItem("penstock.restore");
    return found ? (JSON.parse(found) as { name: string; path: string }) : { name: "", path: "" };
  } catch {
    return { name: "", path: "" }; // without storage nothing is carried over
  }
}

export function SubmitPage(): ReactElement {
  const [kind, setKind] = useState<Kind>("sql");
  const [texts, setTexts] = useState<Record<Kind, string>>({ sql: "", python: "" });
  const [before] = useState(remembered);
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (form: FormData) => {
    setBusy(true);
    setError(undefined);
    try {
      const config = optionsOf(String(form.get("config") ?? ""));
      const path = String(form.get("path") ?? "").trim();
      if (path) config["execution.state-recovery.path"] = path;
      const name = String(form.get("name") ?? "").trim();
      const parallelism = Number(form.get("parallelism") || 0);
      const text = texts[kind];
      if (!text.trim()) throw new Error(kind === "sql" ? "Write a script first." : "Write a program first.");
      const spec = { [kind]: text, config, ...(name ? { name } : {}), ...(parallelism ? { parallelism } : {}) };
      const found = await data(api.POST("/jobs", { body: spec as unknown as Schemas["JobSpec"] }));
      toast(`“${found.name}” is submitted.`);
      go("jobs", found.jobid);
    } catch (problem) {
      setError((problem as Error).message);
      setBusy(false);
    }
  };
  return (
    <>
      <div className="page-head">
        <div>
          <div className="crumb">
            <a href={to("jobs")}>Jobs</a>
          </div>
          <h1>New job</h1>
          <p className="dim">It is planned first: a mistake is shown here, and nothing starts. Then it gets slots and runs until it ends or you stop it.</p>
        </div>
      </div>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void submit(new FormData(event.currentTarget));
        }}
      >
        <Card
          title="What it does"
          end={
            <>
              <Segments
                label="Language"
                items={[
                  { key: "sql", text: "SQL" },
                  { key: "python", text: "Python" },
                ]}
                value={kind}
                onChange={setKind}
              />
              <button type="button" className="button" onClick={() => setTexts({ ...texts, [kind]: EXAMPLES[kind] })}>
                Example
              </button>
            </>
          }
        >
          <label className="field">
            <span>{kind === "sql" ? "Script whose INSERT statements make the job" : "Program that builds a job and calls execute()"}</span>
            <textarea className="input" rows={16} spellCheck={false} value={texts[kind]} onChange={(e) => setTexts({ ...texts, [kind]: e.target.value })} />
          </label>
        </Card>
        <Card title="How it runs">
          <div className="grid three">
            <label className="field">
              <span>Name</span>
              <input className="input" name="name" defaultValue={before.name} placeholder="made from what it does" />
            </label>
            <label className="field">
              <span>Parallelism</span>
              <input className="input" name="parallelism" type="number" min={1} max={32768} placeholder="parallelism.default" />
              <small>How many subtasks each step has; the job needs as many slots.</small>
            </label>
            <label className="field">
              <span>Begin from a savepoint or checkpoint</span>
              <input className="input" name="path" defaultValue={before.path} placeholder="nothing: begin anew" />
              <small>If its state does not fit the job, the job is refused with the difference.</small>
            </label>
          </div>
          <label className="field" style={{ marginTop: 14 }}>
            <span>Options</span>
            <textarea className="input" name="config" rows={3} spellCheck={false} placeholder={"execution.checkpointing.interval: 10 s"} />
            <small>
              One a line, <code>key: value</code>.
            </small>
          </label>
        </Card>
        {error && <Problem text={error} />}
        <div className="row" style={{ justifyContent: "flex-end" }}>
          <button type="submit" className="button main" disabled={busy}>
            {busy ? "Planning …" : "Submit the job"}
          </button>
        </div>
      </form>
    </>
  );
}
