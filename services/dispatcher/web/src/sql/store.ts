/** What the SQL page knows: its session, the catalog, and the statements that run. It outlives the page, so that a query runs
 * on while another page is looked at. */
import { useSyncExternalStore } from "react";
import { Changelog } from "./changelog";
import type { Column } from "./charting";
import { columnsOf, gateway, GatewayError, tokenOf, type CatalogFacts, type Details, type Page } from "./gateway";
import { planOf, type Plan } from "./plan";
import { explaining, kindOf, padded, placeIn, placeOf, whereText, type Piece, type Place } from "./statements";

/** A statement that was run. */
export interface Entry {
  id: number;
  /** Its beginning. */
  text: string;
  line: number;
  state: "running" | "done" | "failed" | "cancelled";
  said: string;
  job: string | undefined;
  error: Details | undefined;
  place: Place | undefined;
}

export interface Result {
  entry: number;
  columns: Column[];
  log: Changelog;
  query: boolean;
  ended: boolean;
}

export interface State {
  ready: "no" | "opening" | "yes";
  /** Why no statement can be run. */
  problem: Details | undefined;
  catalog: CatalogFacts | undefined;
  /** Rises with each change of the catalog. */
  turn: number;
  entries: Entry[];
  result: Result | undefined;
  plan: Plan | undefined;
  busy: boolean;
}

const KEY = "penstock.sql.session";
const MOST_ENTRIES = 50;
const HEARTBEAT_MS = 60_000;
/** Between two fetches: after a full page, after another, without rows, and while the statement is planned. */
const PAUSE_MS = { full: 40, some: 200, none: 400, planning: 60 };
const FULL = 4_000;

let state: State = { ready: "no", problem: undefined, catalog: undefined, turn: 0, entries: [], result: undefined, plan: undefined, busy: false };
let session: string | undefined;
let operation: string | undefined;
let cancelled = false;
let last = 0;
const listeners = new Set<() => void>();

function set(change: Partial<State>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

export function useSql(): State {
  return useSyncExternalStore(
    (listener) => (listeners.add(listener), () => listeners.delete(listener)),
    () => state,
  );
}

export function currentSession(): string | undefined {
  return session;
}

function remember(found: string | undefined): void {
  session = found;
  try {
    if (found) sessionStorage.setItem(KEY, found);
    else sessionStorage.removeItem(KEY);
  } catch {
    return; // without storage the session ends with the page
  }
}

function remembered(): string | undefined {
  try {
    return sessionStorage.getItem(KEY) ?? undefined;
  } catch {
    return undefined;
  }
}

function detailsOf(error: unknown): Details {
  return error instanceof GatewayError ? error.details : { message: String((error as Error).message) };
}

/** Opens the session, or finds the one that this tab had. */
export async function begin(): Promise<void> {
  if (state.ready === "opening" || (state.ready === "yes" && session)) return;
  set({ ready: "opening", problem: undefined });
  try {
    const looked = await gateway.look();
    if (looked.problem) throw new GatewayError({ message: looked.problem }, 503);
    // A session that has expired meanwhile is replaced without a word: the list of tables shows that it is empty.
    const before = remembered();
    const known = before !== undefined && (await gateway.knows(before).then(() => true, () => false));
    remember(known ? before : await gateway.open());
    await look();
    set({ ready: "yes" });
  } catch (error) {
    set({ ready: "no", problem: detailsOf(error) });
  }
}

async function look(): Promise<void> {
  if (session) set({ catalog: await gateway.catalog(session), turn: state.turn + 1 });
}

export async function lookAgain(): Promise<void> {
  await look().catch((error: unknown) => lost(error));
}

/** What follows from an error of the session itself. */
function lost(error: unknown): Details {
  const details = detailsOf(error);
  if (error instanceof GatewayError && error.status === 404 && details.message.startsWith("there is no session")) {
    remember(undefined);
    set({ ready: "no", catalog: undefined, problem: { message: "The session has ended: the gateway was started anew, or this page was silent for too long.", remedy: "Open a new one, and run the declarations of your tables again." } });
  }
  return details;
}

/** Ends the session: its tables are forgotten, its queries cancelled. */
export async function end(): Promise<void> {
  cancelled = true;
  const before = session ?? remembered();
  remember(undefined);
  set({ ready: "no", problem: undefined, catalog: undefined, entries: [], result: undefined, plan: undefined });
  if (before) await gateway.close(before).catch(() => undefined); // it ends by itself when its client is silent
}

window.setInterval(() => {
  if (session) gateway.heartbeat(session).catch((error: unknown) => lost(error));
}, HEARTBEAT_MS);

window.addEventListener("pagehide", () => {
  if (session && operation && state.busy) void gateway.cancel(session, operation).catch(() => undefined);
});

// -- running -------------------------------------------------------------------------------------

function put(entry: Entry): void {
  const others = state.entries.filter((e) => e.id !== entry.id);
  set({ entries: [...others, entry].sort((a, b) => a.id - b.id).slice(-MOST_ENTRIES) });
}

function entryOf(script: string, piece: Piece): Entry {
  const text = piece.text.replace(/\s+/g, " ");
  return { id: ++last, text: text.length > 110 ? `${text.slice(0, 109)}…` : text, line: placeOf(script, piece.from).line, state: "running", said: "", job: undefined, error: undefined, place: undefined };
}

/** Runs statements of a script one after another, up to the first that fails. `config`: settings for these alone. `before`: words
 * before each of them, such as INSERT INTO t. */
export async function run(script: string, pieces: Piece[], config: Record<string, string> = {}, before = ""): Promise<Entry | undefined> {
  if (state.busy) return undefined;
  cancelled = false;
  set({ busy: true, plan: undefined });
  let entry: Entry | undefined;
  let changed = false;
  try {
    for (const piece of pieces) {
      const declares = kindOf(piece.text) === "other";
      // What was declared is shown before a query, which may never end.
      if (changed && !declares) await lookAgain();
      changed = declares;
      entry = await one(script, piece, before + padded(script, piece), before.length, config, show);
      if (entry.state !== "done") break;
    }
  } finally {
    set({ busy: false });
    if (changed) await lookAgain();
  }
  return entry;
}

/** Explains a statement: a graph, or its error. */
export async function explain(script: string, piece: Piece): Promise<void> {
  if (state.busy) return;
  cancelled = false;
  set({ busy: true, plan: undefined, result: undefined });
  const { text, moved } = explaining(script, piece);
  try {
    const entry = await one(script, piece, text, moved, {}, (page) => {
      const found = page.results?.data[0]?.fields[0];
      if (typeof found === "string") set({ plan: planOf(found) });
    });
    if (entry.state === "done") put({ ...entry, said: "Explained; nothing ran." });
  } finally {
    set({ busy: false });
  }
}

async function one(script: string, piece: Piece, text: string, moved: number, config: Record<string, string>, onPage: (page: Page, entry: number) => void): Promise<Entry> {
  let entry = entryOf(script, piece);
  put(entry);
  try {
    if (!session) throw new GatewayError({ message: "There is no session." }, 0);
    operation = await gateway.start(session, text, config);
    entry = await pages(entry, session, operation, onPage);
  } catch (error) {
    if (cancelled) entry = { ...entry, state: "cancelled", said: "Cancelled." };
    else {
      const details = lost(error);
      const where = details.where ? { where: whereText(details.where, moved) } : {};
      entry = { ...entry, state: "failed", error: { ...details, ...where }, place: placeIn(details.where, moved) };
    }
  }
  // Also ends it if it runs. Where that fails, the end of the session forgets it.
  if (session && operation) await gateway.forget(session, operation).catch(() => undefined);
  operation = undefined;
  const { result } = state;
  put(entry);
  if (result?.entry === entry.id) set({ result: { ...result, ended: true } });
  return entry;
}

async function pages(begun: Entry, of: string, running: string, onPage: (page: Page, entry: number) => void): Promise<Entry> {
  let entry = begun;
  let token: number | undefined = 0;
  while (token !== undefined) {
    const page: Page = await gateway.page(of, running, token);
    if (cancelled) throw new Error("cancelled");
    const rows = page.results?.data.length ?? 0;
    if (page.resultType !== "NOT_READY") {
      if (page.jobID && page.jobID !== entry.job) put((entry = { ...entry, job: page.jobID }));
      const said = saidOf(page);
      if (said && said !== entry.said) put((entry = { ...entry, said }));
      onPage(page, entry.id);
    }
    token = tokenOf(page);
    const pause = page.resultType === "NOT_READY" ? PAUSE_MS.planning : rows >= FULL ? PAUSE_MS.full : rows ? PAUSE_MS.some : PAUSE_MS.none;
    if (token !== undefined) await new Promise((go) => window.setTimeout(go, pause));
  }
  return { ...entry, state: "done", said: entry.said || "Done." };
}

function saidOf(page: Page): string {
  if (page.isQueryResult || !page.results?.data.length) return "";
  if (page.jobID) return "The job is submitted.";
  return page.resultKind === "SUCCESS" ? "Done." : "";
}

function show(page: Page, entry: number): void {
  const columns = columnsOf(page);
  const data = page.results?.data ?? [];
  const plain = page.resultKind === "SUCCESS" || (page.jobID !== undefined && !page.isQueryResult);
  if (plain || !columns.length) return;
  const before = state.result?.entry === entry ? state.result : { entry, columns, log: new Changelog(), query: page.isQueryResult ?? false, ended: false };
  before.log.add(data);
  set({ result: { ...before } });
}

/** Cancels what runs: it is closed as soon as the page that is being fetched has come. */
export function cancel(): void {
  cancelled = true;
}
