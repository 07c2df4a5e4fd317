/** What statements can name: catalogs, databases, tables, views with their columns and options, functions. A click inserts the name. */
import { useState, type ReactElement } from "react";
import { useLoaded } from "../api/client";
import { Icon } from "../ui/icons";
import { Problem } from "../ui/parts";
import { gateway, type CatalogFacts, type TableFacts } from "./gateway";
import { quoted } from "./statements";

interface Props {
  facts: CatalogFacts;
  session: string;
  /** Rises with each change of the catalog. */
  turn: number;
  onInsert: (text: string) => void;
  onAgain: () => void;
}

export function CatalogTree({ facts, session, turn, onInsert, onAgain }: Props): ReactElement {
  const [words, setWords] = useState("");
  const keywords = new Set(facts.keywords);
  return (
    <div className="sql-tree">
      <div className="row" style={{ flexWrap: "nowrap", padding: "10px 12px" }}>
        <input className="input grow" type="search" placeholder="Find a name" aria-label="Find a table, view, column or function" value={words} onChange={(e) => setWords(e.target.value)} />
        <button type="button" className="button icon" aria-label="Look again" title="Look again" onClick={onAgain}>
          <Icon name="again" />
        </button>
      </div>
      <ul>
        {facts.catalogs.map((catalog) => (
          <li key={catalog.name}>
            <details open={catalog.name === facts.catalog || undefined}>
              <summary>
                {catalog.name} {catalog.name === facts.catalog && <small>current</small>}
              </summary>
              {catalog.problem && <Problem text={catalog.problem} />}
              <ul>
                {catalog.databases.map((database) => (
                  <Database key={`${database} ${session}`} facts={facts} session={session} turn={turn} catalog={catalog.name} database={database} words={words.toLowerCase()} keywords={keywords} onInsert={onInsert} />
                ))}
              </ul>
            </details>
          </li>
        ))}
        <li>
          <Functions facts={facts} words={words.toLowerCase()} onInsert={onInsert} />
        </li>
      </ul>
    </div>
  );
}

function Database(props: { facts: CatalogFacts; session: string; turn: number; catalog: string; database: string; words: string; keywords: ReadonlySet<string>; onInsert: (text: string) => void }): ReactElement {
  const { facts, session, turn, catalog, database, words, keywords, onInsert } = props;
  const current = catalog === facts.catalog && database === facts.database;
  const [open, setOpen] = useState(current);
  const path = (name: string) => (current ? [name] : [catalog, database, name]).map((part) => quoted(part, keywords)).join(".");
  return (
    <li>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          {database} {current && <small>current</small>}
        </summary>
        {open && <Tables session={session} turn={turn} catalog={catalog} database={database} words={words} path={path} keywords={keywords} onInsert={onInsert} />}
      </details>
    </li>
  );
}

function Tables(props: { session: string; turn: number; catalog: string; database: string; words: string; path: (name: string) => string; keywords: ReadonlySet<string>; onInsert: (text: string) => void }): ReactElement {
  const { session, turn, catalog, database, words, path, keywords, onInsert } = props;
  const found = useLoaded(`${session} ${catalog}.${database}`, () => gateway.tables(session, catalog, database), undefined, turn);
  if (found.error) return <Problem text={found.error} />;
  if (!found.value) return <p className="dim small">Loading …</p>;
  const fits = (table: TableFacts) => !words || [table.name, ...table.columns.map((c) => c.name)].some((name) => name.toLowerCase().includes(words));
  const tables = found.value.tables.filter(fits);
  if (!tables.length) return <p className="dim small">{found.value.tables.length ? "Nothing of this name." : "No tables yet: CREATE TABLE declares one."}</p>;
  return (
    <ul>
      {tables.map((table) => (
        <Item key={table.name} table={table} text={path(table.name)} keywords={keywords} onInsert={onInsert} />
      ))}
      {found.value.more > 0 && <li className="dim small">and {found.value.more} more: SHOW TABLES lists them</li>}
    </ul>
  );
}

function Item({ table, text, keywords, onInsert }: { table: TableFacts; text: string; keywords: ReadonlySet<string>; onInsert: (text: string) => void }): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <div className="line">
        <button type="button" className="twist" aria-expanded={open} aria-label={`Columns of ${table.name}`} onClick={() => setOpen(!open)}>
          <Icon name="next" />
        </button>
        <Name name={table.name} text={text} title={table.comment} onInsert={onInsert} />
        <small>
          {table.temporary ? "temporary " : ""}
          {table.view ? "view" : "table"}
        </small>
      </div>
      {open && (table.problem ? <Problem text={table.problem} /> : <Columns table={table} keywords={keywords} onInsert={onInsert} />)}
    </li>
  );
}

function Columns({ table, keywords, onInsert }: { table: TableFacts; keywords: ReadonlySet<string>; onInsert: (text: string) => void }): ReactElement {
  const options = Object.entries(table.options);
  return (
    <>
      <ul className="columns">
        {table.columns.map((column) => (
          <li key={column.name}>
            <Name name={column.name} text={quoted(column.name, keywords)} title={column.comment ?? ""} onInsert={onInsert} />
            <span className="dim small">
              {[column.type, column.null ? "" : "NOT NULL", column.key && "key", column.extras, column.watermark && `watermark ${column.watermark}`].filter(Boolean).join(" · ")}
            </span>
          </li>
        ))}
      </ul>
      {options.length > 0 && (
        <dl className="options">
          {options.map(([key, value]) => (
            <div key={key}>
              <dt>{key} = </dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
    </>
  );
}

function Functions({ facts, words, onInsert }: { facts: CatalogFacts; words: string; onInsert: (text: string) => void }): ReactElement {
  const [open, setOpen] = useState(false);
  const own = facts.functions.filter((f) => f.own).length;
  const found = facts.functions.filter((f) => f.name.toLowerCase().includes(words)).sort((a, b) => Number(b.own) - Number(a.own));
  return (
    <details open={open || undefined} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Functions{" "}
        <small>
          {facts.functions.length}
          {own > 0 && `, ${own} of your own`}
        </small>
      </summary>
      {open && (
        <ul className="columns">
          {found.map((f) => (
            <li key={f.name}>
              <Name name={f.name} text={`${f.name}(`} title="" onInsert={onInsert} />
              {f.own && <span className="dim small">of your own</span>}
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}

function Name({ name, text, title, onInsert }: { name: string; text: string; title: string; onInsert: (text: string) => void }): ReactElement {
  return (
    <button
      type="button"
      className="name"
      aria-label={`Insert ${name}`}
      title={title || `Insert ${text}`}
      onClick={() => onInsert(text)}
    >
      {name}
    </button>
  );
}
