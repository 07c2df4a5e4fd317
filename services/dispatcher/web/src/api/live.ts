/** The one stream of server-sent events. Parts of the page watch topics; the stream has the topics of all. */
import { useCallback, useEffect, useSyncExternalStore } from "react";
import type { Schemas } from "./client";

type Kinds = Schemas["LiveEvents"];
export type TopicData<T extends string> = T extends "overview"
  ? Kinds["overview"]
  : T extends "taskmanagers"
    ? Kinds["taskmanagers"]
    : T extends `job:${string}`
      ? Kinds["job"]
      : never;

interface Failed {
  errors: string[];
}

const values = new Map<string, unknown>();
const watched = new Map<string, number>();
const listeners = new Set<() => void>();
const hooks = new Set<(topic: string, value: unknown) => void>();
let source: EventSource | undefined;
let opened = "";
let pending = false;
let connected = true;
let lost: number | undefined;

function tell(): void {
  for (const listener of listeners) listener();
}

function setConnected(now: boolean): void {
  window.clearTimeout(lost);
  if (now) {
    if (!connected) {
      connected = true;
      tell();
    }
    return;
  }
  // A stream that is opened anew for other topics is not a lost connection.
  lost = window.setTimeout(() => {
    connected = false;
    tell();
  }, 2500);
}

function reopen(): void {
  pending = false;
  const topics = [...watched.keys()].sort();
  const wanted = topics.join(",");
  if (wanted === opened && source?.readyState !== EventSource.CLOSED) return;
  source?.close();
  source = undefined;
  opened = wanted;
  if (!wanted) return;
  const stream = new EventSource(`./stream?topics=${encodeURIComponent(wanted)}`);
  source = stream;
  stream.onopen = () => setConnected(true);
  stream.onerror = () => {
    setConnected(false);
    // A refused stream is not tried again by the browser.
    if (stream.readyState === EventSource.CLOSED && source === stream) window.setTimeout(schedule, 3000);
  };
  for (const topic of topics) {
    stream.addEventListener(topic, (event) => {
      const value: unknown = JSON.parse((event as MessageEvent<string>).data);
      values.set(topic, value);
      for (const hook of hooks) hook(topic, value);
      tell();
    });
  }
}

function schedule(): void {
  if (pending) return;
  pending = true;
  queueMicrotask(reopen);
}

function watch(topic: string): () => void {
  watched.set(topic, (watched.get(topic) ?? 0) + 1);
  schedule();
  return () => {
    const left = (watched.get(topic) ?? 1) - 1;
    if (left) watched.set(topic, left);
    else watched.delete(topic);
    schedule();
  };
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Calls `hook` with every value of every topic. */
export function onLive(hook: (topic: string, value: unknown) => void): void {
  hooks.add(hook);
}

/** The newest value of a topic, or the errors that came in its place. Undefined: none yet. */
export function useTopic<T extends string>(topic: T): { value: TopicData<T> | undefined; errors: string[] | undefined } {
  useEffect(() => watch(topic), [topic]);
  const read = useCallback(() => values.get(topic), [topic]);
  const found = useSyncExternalStore(subscribe, read) as TopicData<T> | Failed | undefined;
  const errors = (found as Failed | undefined)?.errors;
  return { value: errors ? undefined : (found as TopicData<T> | undefined), errors };
}

/** Whether the stream is connected. */
export function useConnected(): boolean {
  return useSyncExternalStore(subscribe, () => connected);
}
