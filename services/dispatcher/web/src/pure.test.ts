/** The pure parts in tables. */
import { describe, expect, it } from "vitest";
import { after, events, type Tapped } from "./api/tap";
import { curve, layout } from "./graph/layout";
import { fitted, LEAST, zoomed } from "./graph/view";
import { bytes, compact, span, watermark } from "./lib/format";

describe("format", () => {
  it.each([
    [340, "340 ms"],
    [4200, "4.2 s"],
    [65_000, "1 min 5 s"],
    [3_600_000, "1 h"],
    [90_061_000, "1 d 1 h"],
    [-1, "–"],
  ])("spans %d", (ms, text) => expect(span(ms)).toBe(text));
  it.each([
    [999, "999 B"],
    [14_800, "14.8 KB"],
    [25_276_510_208, "25.3 GB"],
  ])("bytes %d", (n, text) => expect(bytes(n)).toBe(text));
  it.each([
    [3, "3"],
    [72.94, "72.9"],
    [1234, "1.2K"],
  ])("counts %d", (n, text) => expect(compact(n)).toBe(text));
  it("says what a watermark means", () => {
    expect(watermark(null, 0)).toBe("none yet");
    expect(watermark(9_223_372_036_854_775, 0)).toBe("input ended");
    expect(watermark(1_000, 6_000)).toBe("5.0 s behind");
  });
});

describe("graph", () => {
  const asked = { nodes: ["a", "b"], edges: [{ from: "a", to: "b" }], direction: "LR" as const, width: 200, height: 80 };
  it("places readers behind writers, without overlap", () => {
    const placed = layout(asked);
    expect(placed.nodes["b"]!.x).toBeGreaterThan(placed.nodes["a"]!.x + asked.width);
    expect(placed.edges[0]!.path).toMatch(/^M/);
  });
  it("keeps two edges between the same vertices apart", () => {
    expect(layout({ ...asked, edges: [...asked.edges, ...asked.edges] }).edges).toHaveLength(2);
  });
  it("lays out 500 vertices", () => {
    const nodes = Array.from({ length: 500 }, (_, i) => `v${i}`);
    const edges = nodes.slice(1).map((to, i) => ({ from: `v${Math.floor(i / 2)}`, to }));
    const placed = layout({ ...asked, nodes, edges });
    expect(new Set(Object.values(placed.nodes).map((p) => `${p.x},${p.y}`)).size).toBe(500);
  });
  it("draws nothing for no points", () => expect(curve([], "LR")).toBe(""));
  it("fits a plane into a window, never enlarged", () => {
    expect(fitted({ width: 100, height: 100 }, { width: 400, height: 400 })).toEqual({ scale: 1, x: 150, y: 150 });
    expect(fitted({ width: 800, height: 100 }, { width: 400, height: 400 }).scale).toBe(0.5);
  });
  it("zooms around a point, within limits", () => {
    const view = zoomed({ x: 0, y: 0, scale: 1 }, 0.5, { x: 100, y: 100 });
    expect(view).toEqual({ scale: 0.5, x: 50, y: 50 });
    expect(zoomed(view, 0.001, { x: 0, y: 0 }).scale).toBe(LEAST);
  });
});

describe("rows of an edge", () => {
  const event = (values: number[]) => ({ edge: "e", columns: [{ name: "n", type: "INT" }], rows: values.map((n) => ({ subtask: 0, kind: "+I", time: null, values: [n] })), passed: 10, unseen: 1, subtasks: 1, silent: 0, problem: "" });
  it("the newest come first, and the oldest are forgotten", () => {
    let state: Tapped = { columns: [], rows: [], passed: 0, shown: 0, last: undefined, ended: undefined, error: undefined };
    for (let turn = 0; turn < 20; turn++) state = after(state, event([...Array(20).keys()].map((i) => 20 * turn + i)));
    expect([state.rows.length, state.rows[0]?.values, state.rows[0]?.key, state.passed, state.shown]).toEqual([200, [399], 399, 220, 400]);
  });
  it("events are read from pieces of a stream", () => {
    const { found, rest } = events('event: rows\ndata: {"a":1}\n\n: a comment\n\nevent: end\nda');
    expect(found).toEqual([{ name: "rows", data: '{"a":1}' }]);
    expect(rest).toBe("event: end\nda");
  });
});
