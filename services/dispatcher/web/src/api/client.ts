/** The client of the REST API: its types are generated from the OpenAPI document. */
import createClient from "openapi-fetch";
import { useCallback, useEffect, useRef, useState } from "react";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

export const api = createClient<paths>({ baseUrl: document.baseURI.replace(/[^/]*(#.*)?$/, "").replace(/\/$/, "") });

/** The text of a refused request: what the server says, or that it does not answer. */
export class RequestError extends Error {}

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** The data of an answer. Throws RequestError with the server's text. */
export async function data<T>(request: Promise<Answer<T>>): Promise<T> {
  let found: Answer<T>;
  try {
    found = await request;
  } catch {
    throw new RequestError("The dispatcher does not answer. Is it running?");
  }
  if (!found.response.ok || found.error !== undefined) throw new RequestError(textOf(found.error, found.response));
  return found.data as T;
}

function textOf(error: unknown, response: Response): string {
  const errors = (error as { errors?: string[] } | undefined)?.errors;
  return errors?.join("\n") || `${response.status} ${response.statusText}`;
}

/** Text of a path that answers with text, such as a log. */
export async function text(path: string): Promise<string> {
  const response = await fetch(`.${path}`);
  const body = await response.text();
  if (!response.ok) {
    let message = body;
    try {
      message = (JSON.parse(body) as { errors: string[] }).errors.join("\n");
    } catch {
      message = body || response.statusText;
    }
    throw new RequestError(message);
  }
  return body;
}

export interface Loaded<T> {
  value: T | undefined;
  error: string | undefined;
  again: () => void;
}

/** Loads something, and again every `everyMs` if given, and when `changed` changes. `key`: what the loading depends on. */
export function useLoaded<T>(key: string, load: () => Promise<T>, everyMs?: number, changed?: unknown): Loaded<T> {
  const [state, set] = useState<{ key: string; value?: T; error?: string }>({ key });
  const [turn, next] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    let over = false;
    let timer: number | undefined;
    const run = async () => {
      try {
        const value = await latest.current();
        if (!over) set({ key, value });
      } catch (error) {
        if (!over) set((before) => ({ key, ...(before.key === key ? { value: before.value as T } : {}), error: String((error as Error).message) }));
      }
      if (!over && everyMs) timer = window.setTimeout(() => void run(), everyMs);
    };
    void run();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [key, everyMs, turn, changed]);
  const again = useCallback(() => next((n) => n + 1), []);
  const fresh = state.key === key;
  return { value: fresh ? state.value : undefined, error: fresh ? state.error : undefined, again };
}
