/** Icons, drawn with lines. */
import type { ReactElement } from "react";

const PATHS: Record<string, string> = {
  overview: "M3 12h4l2-7 4 14 3-9 1 2h4",
  jobs: "M4 6h16M4 12h16M4 18h10",
  sql: "M4 6l5 6-5 6M12 18h8",
  managers: "M4 5h16v5H4zM4 14h16v5H4zM8 7.5h.01M8 16.5h.01",
  cluster: "M12 3v5M12 16v5M5 8l4 3M15 13l4 3M19 8l-4 3M9 13l-4 3M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  check: "M5 12.5l4.5 4.5L19 7.5",
  alert: "M12 8v5M12 16.5h.01M10.3 4.2 2.6 17.6A2 2 0 0 0 4.3 20.6h15.4a2 2 0 0 0 1.7-3L13.7 4.2a2 2 0 0 0-3.4 0z",
  info: "M12 11v6M12 7.5h.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  stop: "M6 6h12v12H6z",
  save: "M5 4h11l3 3v13H5zM8 4v5h7V4M8 20v-6h8v6",
  play: "M7 5l12 7-12 7z",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  next: "M9 6l6 6-6 6",
  minus: "M5 12h14",
  again: "M20 11a8 8 0 1 0-2.3 6M20 5v6h-6",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 9.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z",
};

export function Icon({ name }: { name: keyof typeof PATHS | string }): ReactElement {
  return (
    <svg viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="1.9" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}

export function Logo(): ReactElement {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d="M1 3h5v3l4 4h5v3H8L3 8V6H1z" fill="currentColor" />
    </svg>
  );
}
