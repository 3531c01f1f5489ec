/** The arguments of a tool call, edited by a person before they approve it: read, checked, and what differs. Pure. */
import { isFields } from '../guards.js';
import { line } from '../text.js';
import type { Ask } from '../wire.js';

export type Arguments = Record<string, unknown>;

/** A tool call that waits for a person. `arguments` is null, with `why`, when they cannot be edited here. */
export interface Call {
  tool: string;
  effect: string;
  arguments: Arguments | null;
  why: string;
}

/** What a question of kind `tool` asks for; null for every other question. */
export function callOf(ask: Ask): Call | null {
  if (ask.kind !== 'tool') {
    return null;
  }
  const details = parsed(ask.details);
  const [tool, effect, given] = isFields(details) ? [details['tool'], details['effect'], details['arguments']] : [];
  const call = { tool: typeof tool === 'string' ? tool : '', effect: typeof effect === 'string' ? effect : '' };
  if (!isFields(given)) {
    return { ...call, arguments: null, why: 'its arguments are not named values' };
  }
  return isExact(ask.details) ? { ...call, arguments: given, why: '' } : { ...call, arguments: null, why: INEXACT };
}

const INEXACT = 'a number has more digits than this page can write exactly; edit it in a terminal';

/** Whether every number survives being read and written by a browser, whose numbers have 15 safe digits. */
function isExact(json: string): boolean {
  const bare = json.replace(/"(?:[^"\\]|\\.)*"/g, '""');
  return (bare.match(/-?\d[\d.eE+-]*/g) ?? []).every(each => each.replace(/[eE].*$/, '').replace(/\D/g, '').replace(/^0+/, '').length <= 15);
}

export function textOf(value: Arguments): string {
  return JSON.stringify(value, null, 2);
}

/** What a person typed. `problem` says why it cannot be approved; `changes` is what differs from what the tool was asked with. */
export interface Edited {
  value: Arguments | null;
  problem: string;
  changes: Change[];
}

export interface Change {
  path: string;
  from: string | null;
  to: string | null;
}

export function judged(text: string, original: Arguments): Edited {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { value: null, problem: placed(error, text), changes: [] };
  }
  if (!isFields(value)) {
    return { value: null, problem: 'arguments are an object: {"name": value}', changes: [] };
  }
  const problem = isExact(text) ? '' : INEXACT;
  return { value: problem === '' ? value : null, problem, changes: changesOf(original, value) };
}

/** The error of a parser with its line, which not every browser tells. */
function placed(error: unknown, text: string): string {
  const said = error instanceof Error ? error.message : String(error);
  const at = /position (\d+)/.exec(said)?.[1];
  const where = at === undefined ? '' : `line ${text.slice(0, Number(at)).split('\n').length}: `;
  return line(`${where}${said.replace(/ in JSON at position.*$/, '').replace(/ \(line \d+ column \d+\)$/, '')}`, 160);
}

/** Everything that differs, by its path; null for what is not there on a side. */
export function changesOf(from: unknown, to: unknown, path = ''): Change[] {
  if (isFields(from) && isFields(to)) {
    return [...new Set([...Object.keys(from), ...Object.keys(to)])].flatMap(key => within(from, to, key, path === '' ? key : `${path}.${key}`));
  }
  if (Array.isArray(from) && Array.isArray(to)) {
    return Array.from({ length: Math.max(from.length, to.length) }, (_, at) => at).flatMap(at => within(from, to, at, `${path}[${at}]`));
  }
  const [old, fresh] = [JSON.stringify(from), JSON.stringify(to)];
  return old === fresh ? [] : [{ path, from: old, to: fresh }];
}

function within(from: object, to: object, key: string | number, path: string): Change[] {
  const [had, has] = [Object.hasOwn(from, key), Object.hasOwn(to, key)];
  const [old, fresh] = [(from as Record<string | number, unknown>)[key], (to as Record<string | number, unknown>)[key]];
  if (had && has) {
    return changesOf(old, fresh, path);
  }
  return [{ path, from: had ? JSON.stringify(old) : null, to: has ? JSON.stringify(fresh) : null }];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
