/** Light or dark: as the system says, unless the reader chose. */
import { useSyncExternalStore } from "react";

export type Choice = "auto" | "light" | "dark";
const KEY = "penstock.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function stored(): Choice {
  try {
    const found = window.localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto"; // a browser may forbid storage; the choice then lasts as long as the page
  }
}

let choice = stored();

function shown(): "light" | "dark" {
  return choice === "auto" ? (system.matches ? "dark" : "light") : choice;
}

function apply(): void {
  document.documentElement.dataset["theme"] = shown();
  for (const listener of listeners) listener();
}

export function startTheme(): void {
  system.addEventListener("change", apply);
  apply();
}

export function choose(next: Choice): void {
  choice = next;
  try {
    if (next === "auto") window.localStorage.removeItem(KEY);
    else window.localStorage.setItem(KEY, next);
  } catch {
    // As above: without storage the choice is not kept.
  }
  apply();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useTheme(): { choice: Choice; shown: "light" | "dark" } {
  const now = useSyncExternalStore(subscribe, shown);
  const chosen = useSyncExternalStore(subscribe, () => choice);
  return { choice: chosen, shown: now };
}
