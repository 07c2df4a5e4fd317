/** Values of rows with all their digits: a double holds 16 of the 19 digits of a BIGINT and of the 38 of a DECIMAL. Pure. */
import { isLosslessNumber, parse, stringify } from "lossless-json";

/** JSON whose numbers stay what they were written as. `shown`, `numberOf` and `compared` read them. */
export function exact<T>(text: string): T {
  return parse(text) as T;
}

/** The text of a value; that of a number is the one that the server wrote. */
export function shown(value: unknown): string {
  return typeof value === "string" ? value : (stringify(value) ?? "");
}

/** A number as a double, for charts; undefined: the value is none. */
export function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : isLosslessNumber(value) ? Number(value.value) : undefined;
}

/** Which of two values comes first; NULL comes last. */
export function compared(a: unknown, b: unknown): number {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  const [m, n] = [numberOf(a), numberOf(b)];
  const [x, y] = [shown(a), shown(b)];
  if (m !== undefined && n !== undefined) return m - n || byDigits(x, y);
  return x < y ? -1 : x > y ? 1 : 0;
}

const DIGITS = /^-?\d+(?:\.(\d+))?$/;

/** The order of two numbers that are one double. Values of a column have as many digits behind the point. */
function byDigits(x: string, y: string): number {
  const [a, b] = [DIGITS.exec(x), DIGITS.exec(y)];
  if (!a || !b || a[1]?.length !== b[1]?.length) return 0;
  const [m, n] = [BigInt(x.replace(".", "")), BigInt(y.replace(".", ""))];
  return m < n ? -1 : m > n ? 1 : 0;
}
