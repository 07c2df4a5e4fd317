/** SQL: an editor beside the catalog; results live, plans as graphs. */
import { useEffect, useMemo, useRef, useState, type ReactElement } from "react";
import type { EditorView } from "@codemirror/view";
import type { SQLNamespace } from "@codemirror/lang-sql";
import { useIdentity } from "../api/identity";
import { useLoaded } from "../api/client";
import { to } from "../lib/router";
import { CatalogTree } from "../sql/CatalogTree";
import { Editor, insert, jump } from "../sql/Editor";
import { gateway, type Details } from "../sql/gateway";
import { PlanGraph } from "../sql/PlanGraph";
import { Results } from "../sql/Results";
import { SaveAsJob } from "../sql/SaveAsJob";
import { at, kindOf, split, type Piece } from "../sql/statements";
import { begin, cancel, currentSession, end, explain, lookAgain, run, useSql, type Entry } from "../sql/store";
import { Icon } from "../ui/icons";
import { Badge, Card, Empty, Loading } from "../ui/parts";

const TEXT = "penstock.sql.text";
const EXAMPLE = `-- Rows that the cluster makes up. Control and Enter run the statement at the cursor.
CREATE TABLE clicks (page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '20', 'fields.page.length' = '1');

CREATE TABLE counts (page STRING, n BIGINT) WITH ('connector' = 'blackhole');

SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
`;

function stored(): string {
  try {
    return sessionStorage.getItem(TEXT) ?? EXAMPLE;
  } catch {
    return EXAMPLE; // without storage the text lives as long as the page
  }
}

function store(text: string): void {
  try {
    sessionStorage.setItem(TEXT, text);
  } catch {
    return; // as above
  }
}

export function SqlPage(): ReactElement {
  const who = useIdentity();
  const { ready, problem } = useSql();
  const allowed = who?.["may-submit"];
  useEffect(() => {
    if (allowed) void begin();
  }, [allowed]);
  if (!who) return <Loading />;
  return (
    <>
      <div className="page-head">
        <div>
          <h1>SQL</h1>
          <p className="dim">Queries show their rows here, live; an INSERT becomes a job. Tables last as long as your session with the gateway.</p>
        </div>
        {ready === "yes" && (
          <div className="actions">
            <button type="button" className="button" onClick={() => void end().then(begin)} title="Ends this session: its tables are forgotten, its query cancelled">
              New session
            </button>
          </div>
        )}
      </div>
      {!allowed ? (
        <Card>
          <Empty title="You may not run SQL here">
            Statements run code, which needs the role <b>submit</b>. You are {who.name}, of the role {who.role}.
          </Empty>
        </Card>
      ) : problem ? (
        <NoGateway problem={problem} />
      ) : ready === "yes" ? (
        <Workbench />
      ) : (
        <Loading />
      )}
    </>
  );
}

function NoGateway({ problem }: { problem: Details }): ReactElement {
  return (
    <Card>
      <Empty title="No statement can be run at the moment">
        <p className="sql-problem">{[problem.message, problem.remedy].filter(Boolean).join("\n")}</p>
        <p style={{ margin: "14px 0" }}>The SQL gateway is a process beside the dispatcher. It plans statements and holds your tables.</p>
        <button type="button" className="button main" onClick={() => void begin()}>
          Try again
        </button>
      </Empty>
    </Card>
  );
}

function Workbench(): ReactElement {
  const sql = useSql();
  const view = useRef<EditorView | undefined>(undefined);
  const [script, setScript] = useState(stored);
  const [saving, setSaving] = useState<Piece>();
  const [refused, setRefused] = useState("");
  const session = currentSession() ?? "";
  const facts = sql.catalog;
  const known = useLoaded(`${session} words`, async () => (facts ? await gateway.tables(session, facts.catalog, facts.database) : undefined), undefined, sql.turn);
  const words = useMemo(() => {
    if (!facts) return undefined;
    const schema: Record<string, SQLNamespace> = {};
    for (const table of known.value?.tables ?? []) {
      schema[table.name] = table.columns.map((c) => ({ label: c.name, detail: c.type, type: "property" }));
    }
    return { facts, schema };
  }, [facts, known.value]);
  const failed = sql.entries.at(-1);
  const marks = useMemo(() => (failed?.error && failed.place ? [{ place: failed.place, text: [failed.error.message, failed.error.remedy].filter(Boolean).join("\n") }] : []), [failed]);

  const text = () => view.current?.state.doc.toString() ?? script;
  /** The statements that are selected, else the one at the cursor. */
  const chosen = (): Piece[] => {
    const { from, to: until, head } = view.current?.state.selection.main ?? { from: 0, to: 0, head: 0 };
    const found = from < until ? split(text()).filter((p) => p.from < until && p.to > from) : [at(text(), head)];
    return found.filter((p): p is Piece => p !== undefined);
  };
  const having = (pieces: Piece[], then: (pieces: Piece[]) => void) => {
    setRefused(pieces.length ? "" : "There is no statement.");
    if (pieces.length && !sql.busy) then(pieces);
  };
  const save = ([piece]: Piece[]) => {
    const fits = piece && kindOf(piece.text) !== "other";
    if (fits) setSaving(piece);
    else setRefused("The statement at the cursor makes no job: put the cursor into a SELECT or an INSERT.");
  };
  const runChosen = () => having(chosen(), (pieces) => void run(text(), pieces));
  return (
    <div className="sql-page">
      <div className="stack sql-main">
        <Card flush label="Editor">
          <Editor
            initial={script}
            words={words}
            marks={marks}
            onChange={(changed) => {
              setScript(changed);
              store(changed);
            }}
            onRun={runChosen}
            onView={(made) => (view.current = made)}
          />
          <div className="row sql-bar">
            {sql.busy ? (
              <button type="button" className="button bad main" onClick={cancel}>
                <Icon name="stop" /> Cancel
              </button>
            ) : (
              <button type="button" className="button main" onClick={runChosen} title="Control and Enter">
                <Icon name="play" /> Run
              </button>
            )}
            <button type="button" className="button" disabled={sql.busy} onClick={() => having(split(text()), (pieces) => void run(text(), pieces))}>
              Run all
            </button>
            <button type="button" className="button" disabled={sql.busy} onClick={() => having(chosen().slice(0, 1), ([piece]) => piece && void explain(text(), piece))}>
              Explain
            </button>
            <button type="button" className="button" disabled={sql.busy} onClick={() => having(chosen().slice(0, 1), save)}>
              <Icon name="save" /> Save as job
            </button>
            <span className="small dim sql-hint">Run takes the statement at the cursor, or what is selected.</span>
          </div>
        </Card>
        {refused && (
          <div className="notice" role="status">
            {refused}
          </div>
        )}
        <Entries entries={sql.entries} onPlace={(entry) => entry.place && jump(view.current, entry.place)} />
        {sql.plan && <PlanGraph plan={sql.plan} />}
        {sql.result && <Results key={sql.result.entry} result={sql.result} />}
      </div>
      <aside className="sql-side" aria-label="Catalog">
        <Card title="Catalog" flush>
          {facts ? <CatalogTree facts={facts} session={session} turn={sql.turn} onInsert={(name) => insert(view.current, name)} onAgain={() => void lookAgain()} /> : <Loading />}
        </Card>
      </aside>
      {saving && facts && <SaveAsJob script={text()} piece={saving} facts={facts} onClose={() => setSaving(undefined)} />}
    </div>
  );
}

const TONE = { running: "warn", done: "ok", failed: "bad", cancelled: "" } as const;

/** What was run last, and how it went. */
function Entries({ entries, onPlace }: { entries: Entry[]; onPlace: (entry: Entry) => void }): ReactElement | null {
  if (!entries.length) return null;
  return (
    <Card flush label="Statements that were run">
      <ol className="sql-entries" tabIndex={0} aria-label="Statements that were run">
        {[...entries].reverse().map((entry) => (
          <li key={entry.id}>
            <div className="row" style={{ flexWrap: "nowrap" }}>
              <Badge of={TONE[entry.state]}>{entry.state}</Badge>
              <code className="clip grow" title={entry.text}>
                {entry.text}
              </code>
              <span className="small dim nowrap">line {entry.line}</span>
            </div>
            {entry.error && <Failure entry={entry} onPlace={onPlace} />}
            {(entry.said || entry.job) && !entry.error && (
              <div className="small dim">
                {entry.said} {entry.job && <a href={to("jobs", entry.job)}>Its job</a>}
              </div>
            )}
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Failure({ entry, onPlace }: { entry: Entry; onPlace: (entry: Entry) => void }): ReactElement {
  const { message, where, expected, got, remedy, user_traceback: trace } = entry.error ?? { message: "" };
  const facts: [string, string | undefined][] = [
    ["expected", expected],
    ["got", got],
    ["what to do", remedy],
  ];
  return (
    <div className="notice bad sql-failure" role="alert">
      {trace && <pre>{trace}</pre>}
      <div>{message}</div>
      {where && (
        <div className="small">
          {entry.place ? (
            <button type="button" className="sql-place" onClick={() => onPlace(entry)}>
              {where}
            </button>
          ) : (
            where
          )}
        </div>
      )}
      {facts.map(([name, value]) =>
        value ? (
          <div key={name} className="small">
            {name}: {value}
          </div>
        ) : null,
      )}
    </div>
  );
}
