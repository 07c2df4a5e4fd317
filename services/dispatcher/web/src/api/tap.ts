/** Rows of an edge as they come: the server-sent events of `GET /jobs/{job}/edges/{edge}/tap`. */
import { useEffect, useState } from "react";
import { exact } from "../lib/exact";
import type { Schemas } from "./client";

type TapEvent = Schemas["TapEvent"];
export type TapRow = Schemas["TapRow"] & { key: number };

export interface Tapped {
  columns: Schemas["TapColumn"][];
  /** The newest first. */
  rows: TapRow[];
  passed: number;
  shown: number;
  last: TapEvent | undefined;
  /** Why no more rows come. */
  ended: string | undefined;
  error: string | undefined;
}

const KEPT = 200;
const NOTHING: Tapped = { columns: [], rows: [], passed: 0, shown: 0, last: undefined, ended: undefined, error: undefined };

/** What is known after another event. Pure. */
export function after(before: Tapped, event: TapEvent): Tapped {
  const fresh = event.rows.map((row, i) => ({ ...row, key: before.shown + i })).reverse();
  return {
    ...before,
    columns: event.columns.length ? event.columns : before.columns,
    rows: [...fresh, ...before.rows].slice(0, KEPT),
    passed: before.passed + event.passed + event.unseen,
    shown: before.shown + event.rows.length,
    last: event,
  };
}

/** An event with rows, whose values keep all their digits. Pure. */
export function tapEvent(data: string): TapEvent {
  const event = JSON.parse(data) as TapEvent;
  const { rows } = exact<TapEvent>(data);
  return { ...event, rows: event.rows.map((row, i) => ({ ...row, values: rows[i]?.values ?? [] })) };
}

/** The events in a text of the stream, and what is left of an event that is not whole yet. Pure. */
export function events(text: string): { found: { name: string; data: string }[]; rest: string } {
  const parts = text.split("\n\n");
  const rest = parts.pop() ?? "";
  const found = parts.flatMap((part) => {
    const field = (name: string) => part.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
    const data = field("data");
    return data === undefined ? [] : [{ name: field("event") ?? "", data }];
  });
  return { found, rest };
}

/** Listens to an edge while it is shown and not paused. */
export function useTap(job: string, edge: string, paused: boolean): Tapped {
  const [state, set] = useState<Tapped>(NOTHING);
  useEffect(() => {
    if (paused) return;
    const stop = new AbortController();
    const listen = async () => {
      const answer = await fetch(`./jobs/${encodeURIComponent(job)}/edges/${encodeURIComponent(edge)}/tap`, { signal: stop.signal });
      if (!answer.ok || !answer.body) {
        const refused = (await answer.json().catch(() => undefined)) as { errors?: string[] } | undefined;
        throw new Error(refused?.errors?.join("\n") || `${answer.status} ${answer.statusText}`);
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        const read = events(rest + value);
        rest = read.rest;
        for (const { name, data } of read.found) {
          if (name === "rows") set((before) => after(before, tapEvent(data)));
          if (name === "end") set((before) => ({ ...before, ended: (JSON.parse(data) as Schemas["TapEnd"]).reason }));
        }
      }
    };
    set((before) => ({ ...before, error: undefined, ended: undefined }));
    listen().then(
      () => set((before) => (before.ended ? before : { ...before, error: "The stream of rows has ended: the dispatcher is gone, or your login is over." })),
      (error: unknown) => stop.signal.aborted || set((before) => ({ ...before, error: (error as Error).message })),
    );
    return () => stop.abort();
  }, [job, edge, paused]);
  return state;
}
