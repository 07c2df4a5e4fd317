/** The pure parts of the SQL page in tables. */
import { describe, expect, it } from "vitest";
import { tapEvent } from "./api/tap";
import { compared, exact, numberOf, shown } from "./lib/exact";
import { Changelog, sorted, type Change, type RowKind } from "./sql/changelog";
import { axesOf, chartOf, NONE, seconds, type Column } from "./sql/charting";
import { planOf } from "./sql/plan";
import { at, explaining, extent, kindOf, padded, placeIn, quoted, split, whereText } from "./sql/statements";

describe("statements", () => {
  it.each<[string, string[]]>([
    ["", []],
    [" ; ;\n", []],
    ["SELECT 1", ["SELECT 1"]],
    ["SELECT 1;\nSELECT 2;", ["SELECT 1", "SELECT 2"]],
    ["SELECT ';' AS a; SELECT `b;c` FROM t", ["SELECT ';' AS a", "SELECT `b;c` FROM t"]],
    ["SELECT 'it''s; so'; SELECT 2", ["SELECT 'it''s; so'", "SELECT 2"]],
    ["-- one; two\nSELECT 1 -- a; b\n;/* c; d */ SELECT 2", ["SELECT 1 -- a; b", "SELECT 2"]],
    ["/*+ x */ SELECT 1", ["/*+ x */ SELECT 1"]],
    ["SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]],
    ["EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT 1;\nINSERT INTO b SELECT 2;\nEND;\nSELECT 3", ["EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT 1;\nINSERT INTO b SELECT 2;\nEND", "SELECT 3"]],
    ["BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", ["BEGIN STATEMENT SET", "INSERT INTO a SELECT 1", "END"]],
    ["SELECT CASE WHEN a THEN 1 END; SELECT 2", ["SELECT CASE WHEN a THEN 1 END", "SELECT 2"]],
    ["-- only a comment", []],
  ])("%j", (script, texts) => expect(split(script).map((p) => p.text)).toEqual(texts));
  it("says where each stands", () => {
    for (const piece of split("SELECT 1;\n  SELECT 2 ;")) expect("SELECT 1;\n  SELECT 2 ;".slice(piece.from, piece.to)).toBe(piece.text);
  });
  const script = "SELECT 1;\n\nSELECT 2;\n";
  it.each([
    [0, "SELECT 1"],
    [9, "SELECT 1"],
    [10, "SELECT 1"],
    [11, "SELECT 2"],
    [script.length, "SELECT 2"],
  ])("finds the one at %d", (cursor, text) => expect(at(script, cursor)?.text).toBe(text));
  it("keeps the places of the script", () => {
    const [, second] = split("SELECT 1;  SELECT 2");
    expect(padded("SELECT 1;  SELECT 2", second!)).toBe(`${" ".repeat(11)}SELECT 2`);
    expect(padded(script, at(script, 12)!)).toBe("\n\nSELECT 2");
    const asked = explaining("EXECUTE STATEMENT SET BEGIN x; END", split("EXECUTE STATEMENT SET BEGIN x; END")[0]!);
    expect(asked.text).toBe("EXPLAIN JSON_EXECUTION_PLAN         STATEMENT SET BEGIN x; END");
    expect(explaining("EXPLAIN PLAN FOR SELECT 1", split("EXPLAIN PLAN FOR SELECT 1")[0]!).text.replace(/ +/g, " ")).toBe("EXPLAIN JSON_EXECUTION_PLAN SELECT 1");
    expect(placeIn(`line 1, column ${asked.moved + 3}: table 't'`, asked.moved)).toEqual({ line: 1, column: 3 });
    expect(whereText(`line 1, column ${asked.moved + 3}`, asked.moved)).toBe("line 1, column 3");
    expect(placeIn("line 4, column 2", 9)).toEqual({ line: 4, column: 2 });
    expect(placeIn("line 0, column 0")).toBeUndefined();
    expect(placeIn("table 't'")).toBeUndefined();
  });
  it.each([
    ["SELECT nope FROM t", 1, 8, "nope"],
    ["SELECT\n `a b` FROM t", 2, 2, "`a b`"],
    ["SELECT FROM", 1, 12, "M"],
    ["SELECT 1", 7, 3, "LECT"],
    ["a\n\nb", 2, 1, ""],
  ])("marks the word in %j at %d:%d", (text, line, column, word) => {
    const { from, to } = extent(text, { line, column });
    expect(text.slice(from, to)).toBe(word);
  });
  it.each([
    ["SELECT 1", "query"],
    ["-- a\n(SELECT 1)", "query"],
    ["WITH a AS (SELECT 1) SELECT * FROM a", "query"],
    ["WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "insert"],
    ["insert into t values (1)", "insert"],
    ["EXECUTE STATEMENT SET BEGIN x; END", "insert"],
    ["CREATE TABLE t (a INT)", "other"],
    ["SHOW TABLES", "other"],
  ])("knows what %j does", (text, kind) => expect(kindOf(text)).toBe(kind));
  it("quotes what is no plain word", () => {
    const keywords = new Set(["ORDER"]);
    expect(["a_1", "order", "a b", "x`y"].map((name) => quoted(name, keywords))).toEqual(["a_1", "`order`", "`a b`", "`x``y`"]);
  });
});

const changes = (...all: [RowKind, ...unknown[]][]): Change[] => all.map(([kind, ...fields]) => ({ kind, fields }));
const fieldsOf = (log: Changelog) => log.rows().map((row) => row.fields);

describe("changelog", () => {
  it("an update keeps the place of its row", () => {
    const log = new Changelog();
    log.add(changes(["INSERT", "a", 1], ["INSERT", "b", 1], ["UPDATE_BEFORE", "a", 1], ["UPDATE_AFTER", "a", 2]));
    expect(fieldsOf(log)).toEqual([["a", 2], ["b", 1]]);
    expect(log.counts()).toEqual({ rows: 2, seen: 4, forgotten: 0, unknown: 0, updates: 2 });
    expect(log.changes().map((c) => c.no)).toEqual([4, 3, 2, 1]);
  });
  it("a row whose update has not come whole is not there", () => {
    const log = new Changelog();
    log.add(changes(["INSERT", "a", 1], ["UPDATE_BEFORE", "a", 1]));
    expect([fieldsOf(log), log.counts().rows]).toEqual([[], 0]);
    log.add(changes(["UPDATE_AFTER", "a", 2]));
    expect(fieldsOf(log)).toEqual([["a", 2]]);
  });
  it("of equal rows one goes", () => {
    const log = new Changelog();
    log.add(changes(["INSERT", null], ["INSERT", null], ["DELETE", null]));
    expect(fieldsOf(log)).toEqual([[null]]);
  });
  it("updates of two subtasks may be mixed", () => {
    const log = new Changelog();
    log.add(changes(["INSERT", "a", 1], ["INSERT", "b", 1], ["UPDATE_BEFORE", "a", 1], ["UPDATE_BEFORE", "b", 1], ["UPDATE_AFTER", "b", 2], ["UPDATE_AFTER", "a", 2]));
    expect(fieldsOf(log).sort()).toEqual([["a", 2], ["b", 2]]);
  });
  it("the oldest are forgotten and counted", () => {
    const log = new Changelog(3, 2);
    log.add(changes(...[1, 2, 3, 4, 5].map((n): [RowKind, number] => ["INSERT", n])));
    expect([fieldsOf(log), log.counts().forgotten, log.changes().length]).toEqual([[[3], [4], [5]], 2, 2]);
    log.add(changes(["DELETE", 1], ["DELETE", 5]));
    expect([fieldsOf(log), log.counts().forgotten, log.counts().unknown]).toEqual([[[3], [4]], 1, 0]);
  });
  it("a change of a row that never came is counted", () => {
    const log = new Changelog();
    log.add(changes(["DELETE", 7], ["UPDATE_BEFORE", 8], ["UPDATE_AFTER", 9]));
    expect([fieldsOf(log), log.counts().unknown]).toEqual([[[9]], 2]);
  });
  it("follows a long changelog as a table would", () => {
    const log = new Changelog();
    const truth = new Map<string, number>();
    let seed = 7;
    const next = (below: number) => (seed = (seed * 48271) % 2147483647) % below;
    for (let turn = 0; turn < 4000; turn++) {
      const key = `k${next(50)}`;
      const before = truth.get(key);
      if (before === undefined) {
        log.add(changes(["INSERT", key, 1]));
        truth.set(key, 1);
      } else if (next(9) === 0) {
        log.add(changes(["DELETE", key, before]));
        truth.delete(key);
      } else {
        log.add(changes(["UPDATE_BEFORE", key, before], ["UPDATE_AFTER", key, before + 1]));
        truth.set(key, before + 1);
      }
    }
    expect(fieldsOf(log).sort()).toEqual([...truth].sort());
  });
  it("sorts with NULL at the end", () => {
    const rows = [3, null, 10, 2].map((v, no) => ({ no, fields: [v] }));
    expect(sorted(rows, 0, false).map((r) => r.fields[0])).toEqual([2, 3, 10, null]);
    expect(sorted(rows, -1, true).map((r) => r.no)).toEqual([3, 2, 1, 0]);
    expect(compared("b", "a")).toBeGreaterThan(0);
  });
});

describe("chart", () => {
  const columns: Column[] = [
    { name: "page", type: "VARCHAR" },
    { name: "w", type: "TIMESTAMP_WITHOUT_TIME_ZONE" },
    { name: "n", type: "BIGINT" },
  ];
  const row = (no: number, ...fields: unknown[]) => ({ no, fields });
  it("has time across, numbers up and a line for each word", () => {
    const axes = axesOf(columns)!;
    expect(axes).toEqual({ x: 1, y: [2], by: 0 });
    const found = chartOf(columns, [row(0, "b", "2026-01-01T00:00:10", 2), row(1, "a", "2026-01-01T00:00:00", 1), row(2, "a", null, 9)], axes);
    expect(found.times).toEqual([1767225600, 1767225610]);
    expect(found.lines.map((l) => [l.label, l.values])).toEqual([["b", [null, 2]], ["a", [1, null]]]);
    expect(found.note).toBe("1 rows without a value of w are left out");
  });
  it("has bars over words", () => {
    const few = [columns[0]!, columns[2]!];
    const found = chartOf(few, [row(0, "b", 2), row(1, "a", 1)], axesOf(few)!);
    expect([found.labels, found.lines]).toEqual([["b", "a"], [{ label: "n", values: [2, 1], bars: true }]]);
  });
  it("says what it leaves out", () => {
    const few = [columns[0]!, columns[2]!];
    const many = Array.from({ length: 50 }, (_, i) => row(i, `p${i}`, i));
    expect(chartOf(few, many, { x: NONE, y: [1], by: 0 }).note).toContain("the first 6 values of page have lines");
    expect(chartOf(few, many, { x: 0, y: [1], by: NONE }).note).toBe("the last 40 of 50 values of page are shown");
  });
  it("without numbers there is none", () => expect(axesOf([columns[0]!])).toBeUndefined());
  it("reads times", () => expect([seconds("2026-01-01"), seconds("2026-01-01T00:00:00Z"), seconds("x"), seconds(null)]).toEqual([1767225600, 1767225600, null, null]));
});

describe("plan", () => {
  it("has a text and a graph", () => {
    const text = `== Logical Plan ==\nx\n\n== Physical Execution Plan ==\n{"nodes": [{"id": "1", "type": "S", "contents": "S -> T", "parallelism": 1, "predecessors": []}]}\n`;
    expect(planOf(text)).toEqual({ text: "== Logical Plan ==\nx", nodes: [{ id: "1", type: "S", contents: "S -> T", parallelism: 1, predecessors: [] }] });
    expect(() => planOf("x")).toThrow("without a graph");
  });
});

describe("numbers of rows", () => {
  const long = "[9007199254740993,12345678901234567.89,1.50,1e300,[1.10],{\"k\":9007199254740993},null,true,\"1\"]";
  it("keep their digits", () => {
    const values = exact<unknown[]>(long);
    expect(values.map(shown)).toEqual(["9007199254740993", "12345678901234567.89", "1.50", "1e300", "[1.10]", '{"k":9007199254740993}', "null", "true", "1"]);
    expect(values.map(numberOf)).toEqual([9007199254740992, 12345678901234568, 1.5, 1e300, undefined, undefined, undefined, undefined, undefined]);
  });
  it("are ordered by all of them", () => {
    const values = exact<unknown[]>("[9007199254740993,9007199254740992,-1.50,-1.49,null,2]");
    expect([...values].sort(compared).map(shown)).toEqual(["-1.50", "-1.49", "2", "9007199254740992", "9007199254740993", "null"]);
    const decimals = exact<unknown[]>("[12345678901234567.89,12345678901234567.88]");
    expect([...decimals].sort(compared).map(shown)).toEqual(["12345678901234567.88", "12345678901234567.89"]);
  });
  it("tell rows apart that are one double", () => {
    const log = new Changelog();
    for (const [kind, n] of [["INSERT", "9007199254740993"], ["INSERT", "9007199254740992"], ["DELETE", "9007199254740993"]] as const)
      log.add([{ kind, fields: exact<unknown[]>(`[${n}]`) }]);
    expect(log.rows().map((row) => shown(row.fields))).toEqual(["[9007199254740992]"]);
  });
  it("are exact in a tap, whose own numbers are plain", () => {
    const event = tapEvent('{"columns":[],"rows":[{"kind":"+I","subtask":1,"time":5,"values":[9007199254740993]}],"passed":3,"unseen":0}');
    expect(event.passed + event.rows[0]!.subtask).toBe(4);
    expect(shown(event.rows[0]!.values[0])).toBe("9007199254740993");
  });
});
