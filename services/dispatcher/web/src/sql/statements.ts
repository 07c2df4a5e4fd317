/** Statements of a script: where each begins and ends, and where in the script an error stands. Pure. */

export interface Piece {
  text: string;
  /** Offsets in the script. */
  from: number;
  to: number;
}

const SPACE = /\s/;
/** A statement set has semicolons inside. */
const SET = /^\s*(EXECUTE|EXPLAIN)\s+STATEMENT\s+SET\s+BEGIN\b/i;
const END = /\bEND\s*$/i;

/** Where the string, name or comment that begins at `at` ends; `at` itself if none begins there. */
function skipped(script: string, at: number): number {
  const quote = script[at];
  const closing = (end: number, width: number) => (end < 0 ? script.length : end + width);
  if (quote === "'" || quote === "`" || quote === '"') return closing(script.indexOf(quote, at + 1), 1);
  if (script.startsWith("--", at)) return closing(script.indexOf("\n", at), 0);
  // A hint, /*+ … */, ends as a comment does.
  if (script.startsWith("/*", at)) return closing(script.indexOf("*/", at + 2), 2);
  return at;
}

/** The text without comments and the contents of strings, of the same length. */
function bare(text: string): string {
  let found = "";
  for (let at = 0; at < text.length; ) {
    const end = skipped(text, at);
    found += end > at ? " ".repeat(end - at) : text[at];
    at = Math.max(end, at + 1);
  }
  return found;
}

/** The statements, without the semicolons between them. */
export function split(script: string): Piece[] {
  const found: Piece[] = [];
  let begin = 0;
  const add = (end: number) => {
    let from = begin;
    // Comments before a statement belong to none.
    for (;;) {
      while (from < end && SPACE.test(script[from] ?? "")) from++;
      const comment = script.startsWith("--", from) || (script.startsWith("/*", from) && script[from + 2] !== "+");
      if (from >= end || !comment) break;
      from = Math.min(end, skipped(script, from));
    }
    let to = end;
    while (to > from && SPACE.test(script[to - 1] ?? "")) to--;
    if (to > from) found.push({ text: script.slice(from, to), from, to });
    begin = end + 1;
  };
  let at = 0;
  while (at < script.length) {
    const end = skipped(script, at);
    if (end > at) {
      at = end;
      continue;
    }
    if (script[at] === ";") {
      const text = bare(script.slice(begin, at));
      if (!SET.test(text) || END.test(text)) add(at);
    }
    at++;
  }
  add(script.length);
  return found;
}

/** The statement in which the cursor stands: that which ends last before it, if it stands between two. */
export function at(script: string, cursor: number): Piece | undefined {
  const pieces = split(script);
  return pieces.find((p) => p.from <= cursor && cursor <= p.to + 1) ?? pieces.filter((p) => p.to <= cursor).at(-1) ?? pieces[0];
}

export interface Place {
  line: number;
  column: number;
}

/** Line and column (from 1) of an offset. */
export function placeOf(script: string, offset: number): Place {
  const before = script.slice(0, offset);
  return { line: before.split("\n").length, column: offset - before.lastIndexOf("\n") };
}

/** A statement behind so many empty lines that the places in its errors are places in the script. */
export function padded(script: string, piece: Piece): string {
  const { line, column } = placeOf(script, piece.from);
  return "\n".repeat(line - 1) + " ".repeat(column - 1) + piece.text;
}

const EXPLAIN = "EXPLAIN JSON_EXECUTION_PLAN ";

/** The statement that explains `piece`, and by how much the columns of line 1 are moved by it. */
export function explaining(script: string, piece: Piece): { text: string; moved: number } {
  // Words that EXPLAIN takes the place of become spaces, so that the places behind them stay.
  const words = /^(EXECUTE(?=\s+STATEMENT\s+SET)|EXPLAIN(\s+PLAN\s+FOR)?)\b/i;
  const inner = { ...piece, text: piece.text.replace(words, (found) => found.replace(/\S/g, " ")) };
  return { text: EXPLAIN + padded(script, inner), moved: EXPLAIN.length };
}

/** The place that an error names; undefined: it names none. `moved`: see `explaining`. */
export function placeIn(where: string | undefined, moved = 0): Place | undefined {
  const found = /\bline (\d+), column (\d+)/.exec(where ?? "");
  if (!found) return undefined;
  const [line, column] = [Number(found[1]), Number(found[2])];
  return line < 1 || column < 1 ? undefined : { line, column: line === 1 ? Math.max(1, column - moved) : column };
}

/** The text in which an error stands, with the place as the script has it. */
export function whereText(where: string, moved: number): string {
  return where.replace(/\bline 1, column (\d+)/g, (_, column: string) => `line 1, column ${Math.max(1, Number(column) - moved)}`);
}

/** The extent of the word or sign at a place, for a mark. */
export function extent(script: string, place: Place): { from: number; to: number } {
  const lines = script.split("\n");
  const line = lines[Math.min(place.line, lines.length) - 1] ?? "";
  const start = lines.slice(0, Math.min(place.line, lines.length) - 1).reduce((sum, l) => sum + l.length + 1, 0);
  const column = Math.min(place.column - 1, line.length);
  const word = /^(`[^`]*`|'[^']*'|[\w$]+|.)/.exec(line.slice(column))?.[0].length ?? 0;
  // At the end of a line the character before is marked: an empty mark is not seen.
  return word ? { from: start + column, to: start + column + word } : { from: start + Math.max(0, column - 1), to: start + column };
}

export type Kind = "query" | "insert" | "other";

/** What a statement does, by its first word. */
export function kindOf(text: string): Kind {
  const word = /[A-Za-z]+/.exec(bare(text))?.[0].toUpperCase() ?? "";
  if (["SELECT", "WITH", "VALUES"].includes(word)) return /^\W*WITH\b[\s\S]*\bINSERT\s+(INTO|OVERWRITE)\b/i.test(bare(text)) ? "insert" : "query";
  const set = /^\s*EXECUTE\s+(STATEMENT\s+SET|INSERT)\b/i.test(bare(text));
  return word === "INSERT" || set ? "insert" : "other";
}

/** A name as SQL spells it: in backticks unless it is a plain word. */
export function quoted(name: string, keywords: ReadonlySet<string>): string {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !keywords.has(name.toUpperCase()) ? name : `\`${name.replaceAll("`", "``")}\``;
}
