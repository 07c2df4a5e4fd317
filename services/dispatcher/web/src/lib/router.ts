/** Addresses behind the hash: `#/jobs/ID/graph/VERTEX`. No server path is needed for a page. */
import { useSyncExternalStore } from "react";

function read(): string {
  return window.location.hash.replace(/^#/, "") || "/";
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

/** The parts of the current address, decoded. */
export function useRoute(): string[] {
  const path = useSyncExternalStore(subscribe, read);
  return path.split("/").filter(Boolean).map(decoded);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function to(...parts: (string | number)[]): string {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

export function go(...parts: (string | number)[]): void {
  window.location.hash = to(...parts);
}
