/** The SQL gateway, to which the dispatcher relays: sessions, statements, pages of rows. */
import { exact } from "../lib/exact";
import type { Change } from "./changelog";
import type { Column } from "./charting";

const ERRORS = "application/vnd.penstock.error+json";

/** What a refused statement says. */
export interface Details {
  message: string;
  code?: string;
  expected?: string;
  got?: string;
  where?: string;
  remedy?: string;
  user_traceback?: string;
}

export class GatewayError extends Error {
  constructor(
    readonly details: Details,
    readonly status: number,
  ) {
    super(details.message);
  }
}

async function ask<T>(method: string, path: string, body?: unknown, keepalive = false, read: (text: string) => unknown = JSON.parse): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(`./sql${path}`, {
      method,
      keepalive,
      headers: { accept: `application/json, ${ERRORS}`, ...(method === "POST" ? { "content-type": "application/json" } : {}) },
      ...(method === "POST" ? { body: JSON.stringify(body ?? {}) } : {}),
    });
  } catch {
    throw new GatewayError({ message: "The dispatcher does not answer.", remedy: "Is it running?" }, 0);
  }
  const found = (await answer.text().then(read).catch(() => undefined)) as (T & { error?: Details; errors?: string[] }) | undefined;
  if (answer.ok && found !== undefined) return found;
  throw new GatewayError(found?.error ?? { message: found?.errors?.join("\n") || `${answer.status} ${answer.statusText}` }, answer.status);
}

export interface Page {
  resultType: "NOT_READY" | "PAYLOAD" | "EOS";
  isQueryResult?: boolean;
  resultKind?: "SUCCESS" | "SUCCESS_WITH_CONTENT";
  jobID?: string;
  nextResultUri?: string | null;
  results?: { columns: { name: string; logicalType: { type: string } }[]; data: Change[] };
}

export interface CatalogFacts {
  catalog: string;
  database: string;
  catalogs: { name: string; databases: string[]; problem: string }[];
  functions: { name: string; own: boolean }[];
  keywords: string[];
}

export interface TableFacts {
  name: string;
  view: boolean;
  temporary?: boolean;
  comment: string;
  problem: string;
  columns: { name: string; type: string; null: boolean; key: string; extras: string; watermark: string; comment?: string }[];
  options: Record<string, string>;
}

const part = encodeURIComponent;

export const gateway = {
  look: () => ask<{ address: string; problem: string }>("GET", ""),
  open: async () => (await ask<{ sessionHandle: string }>("POST", "/sessions", { sessionName: "dashboard" })).sessionHandle,
  knows: (session: string) => ask<unknown>("GET", `/sessions/${part(session)}`),
  close: (session: string) => ask<unknown>("DELETE", `/sessions/${part(session)}`, undefined, true),
  heartbeat: (session: string) => ask<unknown>("POST", `/sessions/${part(session)}/heartbeat`),
  catalog: (session: string) => ask<CatalogFacts>("GET", `/sessions/${part(session)}/catalog`),
  tables: (session: string, catalog: string, database: string) =>
    ask<{ tables: TableFacts[]; more: number }>("GET", `/sessions/${part(session)}/tables?catalog=${part(catalog)}&database=${part(database)}`),
  start: async (session: string, statement: string, executionConfig: Record<string, string>) =>
    (await ask<{ operationHandle: string }>("POST", `/sessions/${part(session)}/statements`, { statement, executionConfig })).operationHandle,
  page: (session: string, operation: string, token: number) => ask<Page>("GET", `/sessions/${part(session)}/operations/${part(operation)}/result/${token}?rowFormat=JSON`, undefined, false, exact),
  cancel: (session: string, operation: string) => ask<unknown>("POST", `/sessions/${part(session)}/operations/${part(operation)}/cancel`, {}, true),
  forget: (session: string, operation: string) => ask<unknown>("DELETE", `/sessions/${part(session)}/operations/${part(operation)}/close`),
};

export function columnsOf(page: Page): Column[] {
  return (page.results?.columns ?? []).map((c) => ({ name: c.name, type: c.logicalType.type }));
}

/** The token of the next page; undefined: there is none. */
export function tokenOf(page: Page): number | undefined {
  const found = /\/result\/(\d+)/.exec(page.nextResultUri ?? "");
  return found ? Number(found[1]) : undefined;
}
