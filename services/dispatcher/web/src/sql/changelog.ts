/** The rows of a query as its changelog leaves them. Pure, but for `Changelog`, which keeps them. */

import { compared, shown } from "../lib/exact";

/** As the gateway names them. */
export type RowKind = "INSERT" | "UPDATE_BEFORE" | "UPDATE_AFTER" | "DELETE";
export const SIGN: Record<RowKind, string> = { INSERT: "+I", UPDATE_BEFORE: "-U", UPDATE_AFTER: "+U", DELETE: "-D" };

export interface Change {
  kind: RowKind;
  fields: unknown[];
}

export interface Row {
  /** Its number in the order of arrival. An update keeps its place. */
  no: number;
  fields: unknown[];
}

/** So many rows and changes are kept, the newest. */
export const MOST_ROWS = 10_000;
export const MOST_CHANGES = 1_000;

export class Changelog {
  /** In the order of arrival. */
  readonly #rows = new Map<number, Row>();
  /** Text of a row → the numbers of the rows that are so. */
  readonly #alike = new Map<string, number[]>();
  /** Rows of -U whose +U has not come yet, in their order: they are not there at the moment. */
  #leaving: number[] = [];
  #changes: (Change & { no: number })[] = [];
  #seen = 0;
  #next = 0;
  #forgotten = 0;
  #unknown = 0;
  #updates = 0;

  constructor(
    private readonly most = MOST_ROWS,
    private readonly mostChanges = MOST_CHANGES,
  ) {}

  add(changes: Change[]): void {
    for (const change of changes) {
      this.#seen += 1;
      this.#one(change);
    }
    const fresh = changes.slice(-this.mostChanges).map((change, i, all) => ({ ...change, no: this.#seen - all.length + i + 1 }));
    this.#changes = [...this.#changes, ...fresh].slice(-this.mostChanges);
  }

  #one({ kind, fields }: Change): void {
    if (kind !== "INSERT") this.#updates += 1;
    switch (kind) {
      case "INSERT":
        return this.#put(this.#next++, fields);
      case "UPDATE_AFTER":
        return this.#put(this.#leaving.shift() ?? this.#next++, fields);
      case "UPDATE_BEFORE": {
        const no = this.#take(fields);
        if (no !== undefined) this.#leaving.push(no);
        return;
      }
      case "DELETE": {
        const no = this.#take(fields);
        if (no !== undefined) this.#rows.delete(no);
      }
    }
  }

  #put(no: number, fields: unknown[]): void {
    this.#rows.set(no, { no, fields });
    const text = shown(fields);
    const alike = this.#alike.get(text);
    if (alike) alike.push(no);
    else this.#alike.set(text, [no]);
    if (this.#rows.size <= this.most) return;
    const [oldest] = this.#rows.values();
    if (!oldest) return;
    this.#rows.delete(oldest.no);
    this.#leaving = this.#leaving.filter((other) => other !== oldest.no);
    this.#without(shown(oldest.fields), oldest.no);
    this.#forgotten += 1;
  }

  /** Takes one row that is so out of the index. Undefined: there is none. */
  #take(fields: unknown[]): number | undefined {
    const text = shown(fields);
    const no = this.#alike.get(text)?.at(-1);
    if (no !== undefined) this.#without(text, no);
    else if (this.#forgotten > 0) this.#forgotten -= 1;
    else this.#unknown += 1;
    return no;
  }

  #without(text: string, no: number): void {
    const left = (this.#alike.get(text) ?? []).filter((other) => other !== no);
    if (left.length) this.#alike.set(text, left);
    else this.#alike.delete(text);
  }

  /** The rows that are there, in the order of arrival. */
  rows(): Row[] {
    const leaving = new Set(this.#leaving);
    const all = [...this.#rows.values()];
    return leaving.size ? all.filter((row) => !leaving.has(row.no)) : all;
  }

  /** The last changes, the newest first. */
  changes(): (Change & { no: number })[] {
    return [...this.#changes].reverse();
  }

  /** `seen`: changes so far; `forgotten`: rows of the result that are not kept; `unknown`: changes of rows that never came. */
  counts(): { rows: number; seen: number; forgotten: number; unknown: number; updates: number } {
    return { rows: this.#rows.size - this.#leaving.length, seen: this.#seen, forgotten: this.#forgotten, unknown: this.#unknown, updates: this.#updates };
  }
}

/** The rows in the order of a column (-1: that of arrival). */
export function sorted(rows: Row[], column: number, down: boolean): Row[] {
  const found = column < 0 ? [...rows] : [...rows].sort((a, b) => compared(a.fields[column], b.fields[column]));
  return down ? found.reverse() : found;
}
