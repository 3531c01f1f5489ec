/**
 * Text of models and tools made harmless for a page, and numbers as a person reads them.
 *
 * HTML is no concern here: nothing is ever parsed as HTML, text goes into text nodes. What remains are characters that make a
 * text read differently from what it is (bidirectional overrides, CVE-2021-42574) or hide in it (controls, terminal escapes):
 * they become visible escapes, as `ipyagent_sessions.textsafe` does it.
 */

const LINE_UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;
const BLOCK_UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;

/** One line: controls and overrides as escapes, cut to `width` characters with an ellipsis. */
export function line(text: string, width = 200): string {
  const cut = text.length > width ? `${text.slice(0, width - 1)}…` : text;
  return cut.replace(LINE_UNSAFE, escaped);
}

/** Several lines: as `line`, but line feeds and tabs stay. Nothing is cut. */
export function block(text: string): string {
  return text.replace(/\r\n/g, '\n').replace(BLOCK_UNSAFE, escaped);
}

/** The last `limit` characters of a growing text, from the beginning of a line where one is near. */
export function tail(text: string, limit: number): string {
  if (text.length <= limit) {
    return text;
  }
  const cut = text.slice(-limit);
  const at = cut.indexOf('\n');
  return at >= 0 && at < limit / 4 ? cut.slice(at + 1) : cut;
}

function escaped(character: string): string {
  const short: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
  const code = character.codePointAt(0) ?? 0;
  return short[character] ?? (code < 256 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`);
}

const hex = (code: number, digits: number): string => code.toString(16).padStart(digits, '0');

/** "8 min 32 s": the two largest units; "unknown" for null. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) {
    return 'unknown';
  }
  if (seconds < 1) {
    return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  }
  const whole = Math.round(seconds);
  return seconds < 10 ? `${seconds.toFixed(1)} s` : inUnits(whole);
}

/** As `duration`, in whole seconds: what ticks on the page does not flicker between tenths. */
export function clockDuration(seconds: number | null): string {
  return seconds === null ? 'unknown' : inUnits(Math.max(0, Math.floor(seconds)));
}

/** One unit, for narrow places: "2 min". */
export function shortDuration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, unit] of UNITS) {
    if (whole >= size) {
      return `${Math.floor(whole / size)} ${unit}`;
    }
  }
  return '0 s';
}

const UNITS: readonly (readonly [number, string])[] = [
  [86400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's']
];

function inUnits(whole: number): string {
  const at = UNITS.findIndex(([size]) => whole >= size);
  const first = UNITS[at];
  if (first === undefined) {
    return '0 s';
  }
  const rest = whole % first[0];
  const second = UNITS[at + 1];
  const head = `${Math.floor(whole / first[0])} ${first[1]}`;
  return second === undefined ? head : `${head} ${Math.floor(rest / second[0])} ${second[1]}`;
}

/** "40 s ago", "just now". */
export function age(seconds: number): string {
  return seconds < 1 ? 'just now' : `${shortDuration(seconds)} ago`;
}

/** "1.2 GB" in powers of 1000. */
export function size(bytes: number | null): string {
  if (bytes === null) {
    return 'unknown';
  }
  let [rest, at] = [bytes, 0];
  while (rest >= 1000 && at < SIZES.length - 1) {
    [rest, at] = [rest / 1000, at + 1];
  }
  return `${at === 0 ? rest : rest.toFixed(1)} ${SIZES[at]}`;
}

const SIZES = ['B', 'KB', 'MB', 'GB', 'TB'] as const;

/** "1.2 of 6.8 GB": one unit when both have the same. */
export function sizeOf(part: number, whole: number | null): string {
  if (whole === null) {
    return size(part);
  }
  const [left, right] = [size(part), size(whole)];
  const unit = right.slice(right.indexOf(' '));
  return left.endsWith(unit) ? `${left.slice(0, -unit.length)} of ${right}` : `${left} of ${right}`;
}

/** "18.2 k", "3.1 M". */
export function quantity(count: number): string {
  if (count < 1000) {
    return `${Math.round(count)}`;
  }
  return count < 999_950 ? `${(count / 1000).toFixed(1)} k` : `${(count / 1_000_000).toFixed(1)} M`;
}

/** "$0.31"; four digits below a cent. */
export function money(usd: number): string {
  return usd >= 0.01 || usd === 0 ? `$${usd.toFixed(2)}` : `$${usd.toFixed(4)}`;
}

/** Whole percent, rounded down so that 100 means done; null when the whole is not known. */
export function percent(part: number, whole: number | null): number | null {
  return whole === null || whole <= 0 ? null : Math.min(100, Math.floor((100 * part) / whole));
}

/** Time of day in the person's own zone: "14:02". */
export function clock(timestamp: string | number): string {
  const date = new Date(timestamp);
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' });
}

/** With seconds: "14:02:07". */
export function clockWithSeconds(timestamp: string | number): string {
  const date = new Date(timestamp);
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
