/** What a tool was given and what it gave, as something to look at: text, a table, a picture. Pure. */
import { isFields } from '../guards.js';
import { duration, money, quantity } from '../text.js';
import type { Called, Cost } from './talk.js';

/** Something that is drawn: `mime` is one of the few that are, and `data` its text (pictures in base64). */
export interface Figure {
  mime: 'image/png' | 'image/jpeg' | 'text/html' | 'text/markdown';
  data: string;
}

export interface Grid {
  columns: string[];
  rows: string[][];
  /** How many rows there are, also those that are not shown. */
  count: number;
}

export type Piece = { kind: 'text'; text: string } | { kind: 'table'; grid: Grid } | { kind: 'figure'; figure: Figure };

export const MOST_ROWS = 50;
const MOST_COLUMNS = 20;
const MOST_PIECES = 20;
const DRAWN = ['image/png', 'image/jpeg', 'text/html', 'text/markdown'] as const;

/** A result in pieces. `outputs` of a notebook, or a bundle of one, become what they show; records become a table. */
export function piecesOf(value: unknown): Piece[] {
  const plain = plainOf(value);
  if (plain === undefined || plain === null) {
    return [];
  }
  const outputs = isFields(plain) && Array.isArray(plain['outputs']) ? plain['outputs'] : Array.isArray(plain) && plain.every(isOutput) ? plain : null;
  if (outputs !== null && outputs.some(isOutput)) {
    const rest = isFields(plain) ? Object.fromEntries(Object.entries(plain).filter(([key]) => key !== 'outputs')) : {};
    const first: Piece[] = Object.keys(rest).length > 0 ? piecesOf(rest) : [];
    return [...first, ...outputs.slice(0, MOST_PIECES).flatMap(pieceOfOutput)];
  }
  if (isOutput(plain)) {
    return pieceOfOutput(plain);
  }
  const grid = gridOf(plain);
  return [grid === null ? { kind: 'text', text: textOf(plain) } : { kind: 'table', grid }];
}

function isOutput(value: unknown): value is Record<string, unknown> {
  return isFields(value) && (isFields(value['data']) || (value['output_type'] === 'stream' && 'text' in value) || value['output_type'] === 'error');
}

function pieceOfOutput(value: unknown): Piece[] {
  if (!isOutput(value)) {
    return [];
  }
  const bundle = value['data'];
  if (isFields(bundle)) {
    const mime = DRAWN.find(each => joined(bundle[each]) !== '');
    if (mime !== undefined) {
      return [{ kind: 'figure', figure: { mime, data: joined(bundle[mime]) } }];
    }
    const text = joined(bundle['text/plain']);
    return text === '' ? [] : [{ kind: 'text', text }];
  }
  const text = joined(value['text']) || [value['ename'], value['evalue']].filter(each => typeof each === 'string').join(': ');
  return text === '' ? [] : [{ kind: 'text', text }];
}

/** A notebook holds text as one string or as lines. */
function joined(value: unknown): string {
  return typeof value === 'string' ? value : Array.isArray(value) && value.every(each => typeof each === 'string') ? value.join('') : '';
}

/** Records, or columns with rows, as a table; null for everything else. */
export function gridOf(value: unknown): Grid | null {
  if (isFields(value) && Array.isArray(value['columns'])) {
    const rows = value['rows'] ?? value['data'];
    if (Array.isArray(rows) && rows.every(Array.isArray)) {
      return grid(value['columns'].map(cell), rows as unknown[][], rows.length);
    }
  }
  if (!Array.isArray(value) || value.length === 0 || !value.every(row => isFields(row) && Object.values(row).every(isScalar))) {
    return null;
  }
  const records = value as Record<string, unknown>[];
  const columns = [...new Set(records.slice(0, MOST_ROWS).flatMap(row => Object.keys(row)))];
  return grid(columns, records.slice(0, MOST_ROWS).map(row => columns.map(name => row[name])), records.length);
}

function grid(columns: string[], rows: unknown[][], count: number): Grid {
  const shown = rows.slice(0, MOST_ROWS).map(row => row.slice(0, MOST_COLUMNS).map(cell));
  return { columns: columns.slice(0, MOST_COLUMNS), rows: shown, count };
}

const isScalar = (value: unknown): boolean => value === null || typeof value !== 'object';
const cell = (value: unknown): string => (value === null || value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value));

/** A value as text: texts as they are, everything else as JSON. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

/** Recorded values without the tags that say of which Python type they were. */
export function plainOf(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(plainOf);
  }
  if (!isFields(value)) {
    return value;
  }
  const tag = value['$'];
  if (typeof tag === 'string') {
    const inner = value['v'];
    if (tag === 'dict' && Array.isArray(inner)) {
      return Object.fromEntries(inner.filter(Array.isArray).map(pair => [cell(plainOf(pair[0])), plainOf(pair[1])]));
    }
    return Array.isArray(inner) ? inner.map(plainOf) : isFields(inner) ? plainOf(inner) : `<${tag}>${tag.length + cell(inner).length < 80 ? ` ${cell(inner)}` : ''}`;
  }
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plainOf(each)]));
}

/** A call in one line: `grep(pattern="TODO", path="src")`, cut where it gets long. */
export function callText(name: string, args: unknown, width = 120): string {
  const plain = plainOf(args);
  if (!isFields(plain)) {
    return plain === undefined || plain === null ? `${name}()` : cut(`${name}(${JSON.stringify(plain)})`, width);
  }
  return cut(`${name}(${Object.entries(plain).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(', ')})`, width);
}

const cut = (text: string, width: number): string => (text.length > width ? `${text.slice(0, width - 1)}…` : text);

/** "2.3 s · 1.2 k in, 300 out · $0.01"; what is not known is left out. */
export function costText(cost: Cost | null): string {
  if (cost === null) {
    return '';
  }
  const tokens = [cost.input === null ? '' : `${quantity(cost.input)} in`, cost.output === null ? '' : `${quantity(cost.output)} out`].filter(Boolean);
  return [cost.ms === null ? '' : duration(cost.ms / 1000), tokens.join(', '), cost.usd === null ? '' : money(cost.usd)]
    .filter(part => part !== '')
    .join(' · ');
}

/** How a call stands, in words. */
export function fateText(call: Called): string {
  const tried = call.attempt > 1 ? ` · attempt ${call.attempt}` : '';
  return `${{ open: 'running', ok: 'done', failed: 'failed', lost: 'outcome unknown' }[call.fate]}${tried}`;
}
