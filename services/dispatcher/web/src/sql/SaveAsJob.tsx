/** A statement as a job with a name: an INSERT as it is, a query with a table that takes its rows. */
import { useState, type ReactElement } from "react";
import { useLoaded } from "../api/client";
import { go } from "../lib/router";
import { Dialog } from "../ui/dialog";
import { gateway, type CatalogFacts } from "./gateway";
import { kindOf, quoted, type Piece } from "./statements";
import { currentSession, run } from "./store";

export function SaveAsJob({ script, piece, facts, onClose }: { script: string; piece: Piece; facts: CatalogFacts; onClose: () => void }): ReactElement {
  const query = kindOf(piece.text) === "query";
  const session = currentSession() ?? "";
  const tables = useLoaded(`${session} sinks`, () => gateway.tables(session, facts.catalog, facts.database));
  const [table, setTable] = useState("");
  const sinks = (tables.value?.tables ?? []).filter((t) => !t.view);
  const keywords = new Set(facts.keywords);
  const into = query && table ? `INSERT INTO ${quoted(table, keywords)} ` : "";
  const submit = async (form: FormData) => {
    if (query && !table) throw new Error("Choose the table that takes the rows.");
    const name = String(form.get("name") ?? "").trim();
    const parallelism = String(form.get("parallelism") ?? "").trim();
    if (!name) throw new Error("Give the job a name.");
    const config = { "pipeline.name": name, ...(parallelism ? { "parallelism.default": parallelism } : {}) };
    const entry = await run(script, [piece], config, into);
    if (entry?.state !== "done" || !entry.job) {
      const { error } = entry ?? {};
      throw new Error(error ? [error.message, error.where && `at ${error.where}`, error.remedy].filter(Boolean).join("\n") : "The statement started no job.");
    }
    go("jobs", entry.job);
    return `“${name}” is submitted.`;
  };
  return (
    <Dialog
      title="Save as a job"
      will={[
        "The statement is planned; a mistake is shown here, and nothing starts.",
        query ? "Its rows go into the table that you choose, and are not shown here." : "It runs without this page and this session, until it ends or you stop it.",
        "It gets its own slots. Its tables and functions are those of this session.",
      ]}
      confirm="Submit the job"
      run={submit}
      onClose={onClose}
    >
      <label className="field">
        <span>Name</span>
        <input className="input" name="name" required autoFocus placeholder="clicks by page" />
      </label>
      {query && (
        <label className="field">
          <span>Table that takes the rows</span>
          <select className="input" value={table} onChange={(event) => setTable(event.target.value)}>
            <option value="">Choose a table</option>
            {sinks.map((t) => (
              <option key={t.name}>{t.name}</option>
            ))}
          </select>
          <small>{sinks.length ? "Of the current database. Its columns must fit those of the query." : "There is none: declare one with CREATE TABLE."}</small>
        </label>
      )}
      <label className="field">
        <span>Parallelism</span>
        <input className="input" name="parallelism" type="number" min={1} max={32768} placeholder="parallelism.default" />
      </label>
    </Dialog>
  );
}
