/** A chart of values over time. */
import { useEffect, useRef, type ReactElement } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "../lib/theme";

export interface Line {
  label: string;
  values: (number | null)[];
  fill?: boolean;
  bars?: boolean;
}

interface Props {
  title: string;
  note?: string;
  times: number[];
  lines: Line[];
  show: (value: number) => string;
  height?: number;
  /** The x axis has these labels instead of times. */
  labels?: string[];
  sync?: string;
}

const COLOURS = ["--s1", "--s2", "--s3", "--s4", "--s5", "--s6"];

export function Chart({ title, note, times, lines, show, height = 150, labels, sync }: Props): ReactElement {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const theme = useTheme().shown;
  const shape = `${theme}|${height}|${labels ? "labels" : ""}|${lines.map((l) => `${l.label}${l.fill}${l.bars}`).join("|")}`;
  const newest = useRef({ times, lines, show, labels });
  newest.current = { times, lines, show, labels };

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width: Math.max(200, element.clientWidth),
      height,
      legend: { live: true },
      cursor: { points: { size: 6 }, ...(sync ? { sync: { key: sync } } : {}) },
      scales: { x: labels ? { time: false, range: (_u, low, high) => [low - 0.6, high + 0.6] } : { time: true }, y: { range: (_u, _low, high) => [0, high > 0 ? high * 1.12 : 1] } },
      axes: [
        labels
          ? { ...axis, size: 26, values: (_u: uPlot, splits: number[]) => splits.map((s) => newest.current.labels?.[s] ?? "") }
          : { ...axis, size: 26, values: (_u: uPlot, splits: number[]) => splits.map((s) => new Date(1000 * s).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })), space: 74 },
        { ...axis, size: 62, values: (_u: uPlot, splits: number[]) => splits.map((s) => newest.current.show(s)) },
      ],
      series: [
        { label: labels ? "No." : "at", value: (_u: uPlot, v: number | null) => (v === null ? "–" : labels ? (newest.current.labels?.[v] ?? "") : new Date(1000 * v).toLocaleTimeString("en-GB")) },
        ...lines.map((line, i): uPlot.Series => {
          const stroke = colour(COLOURS[i % COLOURS.length] ?? "--s1");
          return {
            label: line.label,
            stroke,
            width: line.bars ? 0 : 1.8,
            value: (_u: uPlot, v: number | null) => (v === null || v === undefined ? "–" : newest.current.show(v)),
            ...(line.fill || line.bars ? { fill: line.bars ? stroke : `${stroke}22` } : {}),
            ...(line.bars && uPlot.paths.bars ? { paths: uPlot.paths.bars({ size: [0.7, 40] }), points: { show: false } } : { points: { show: newest.current.times.length < 2 } }),
          };
        }),
      ],
    };
    const made = new uPlot(options, aligned(newest.current.times, newest.current.lines), element);
    plot.current = made;
    const watcher = new ResizeObserver(() => made.setSize({ width: Math.max(200, element.clientWidth), height }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [shape, sync]);

  useEffect(() => {
    plot.current?.setData(aligned(times, lines));
  });

  return (
    <figure className="chart">
      <figcaption>
        {title} {note && <small>{note}</small>}
      </figcaption>
      <div ref={place} />
    </figure>
  );
}

function aligned(times: number[], lines: Line[]): uPlot.AlignedData {
  return [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}
