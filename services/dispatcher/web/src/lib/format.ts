/** Numbers, sizes and times for people. */

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function count(value: number): string {
  return NUMBER.format(value);
}

/** `1.2K`, `15M`. */
export function compact(value: number): string {
  return Math.abs(value) < 1000 ? (Number.isInteger(value) ? String(value) : value.toFixed(1)) : SHORT.format(value);
}

export function bytes(value: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

/** A duration: `340 ms`, `12 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`. */
export function span(ms: number): string {
  if (ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 10) return `${(ms / 1000).toFixed(1)} s`;
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  return parts
    .slice(first, first + 2)
    .filter(([n]) => n > 0)
    .map(([n, unit]) => `${n} ${unit}`)
    .join(" ");
}

export function ago(ms: number, now = Date.now()): string {
  return ms > 0 ? `${span(Math.max(0, now - ms))} ago` : "–";
}

export function clock(ms: number): string {
  return ms > 0 ? new Date(ms).toLocaleTimeString("en-GB") : "–";
}

export function moment(ms: number): string {
  if (ms <= 0) return "–";
  const at = new Date(ms);
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return `${day}, ${at.toLocaleTimeString("en-GB")}`;
}

export function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}

/** The watermark of an input that has ended. */
const ENDED = 9_000_000_000_000_000;

/** What a watermark (ms) says, and how far it is behind the clock. */
export function watermark(ms: number | null | undefined, now: number): string {
  if (ms === null || ms === undefined) return "none yet";
  if (ms >= ENDED) return "input ended";
  const behind = now - ms;
  return behind >= 0 && behind < 7 * 86_400_000 ? `${span(behind)} behind` : moment(ms);
}

export type Tone = "ok" | "warn" | "bad" | "info" | "";

/** The colour of a job's or a task's state. */
export function tone(state: string): Tone {
  switch (state) {
    case "RUNNING":
    case "COMPLETED":
      return "ok";
    case "FINISHED":
      return "info";
    case "FAILED":
    case "FAILING":
      return "bad";
    case "RESTARTING":
    case "CANCELLING":
    case "CANCELING":
    case "INITIALIZING":
    case "IN_PROGRESS":
    case "RECONCILING":
      return "warn";
    default:
      return "";
  }
}

export const SEVERITY: Record<string, { tone: Tone; word: string }> = {
  error: { tone: "bad", word: "Needs you now" },
  warning: { tone: "warn", word: "Worth a look" },
  info: { tone: "info", word: "Good to know" },
};
