/** The list as a person reads it: who needs me, what runs, what stands still, what is over. Pure. */
import * as text from '../text.js';
import { ENDED } from '../view/states.js';
import type { Counts, Row } from '../wire.js';

export type GroupId = 'needs' | 'running' | 'stopped' | 'done';
export const GROUPS: readonly { id: GroupId; name: string }[] = [
  { id: 'needs', name: 'Needs you' },
  { id: 'running', name: 'Running' },
  { id: 'stopped', name: 'Interrupted' },
  { id: 'done', name: 'Done' }
];

export const SORTS = [
  { id: '-updated', name: 'last change' },
  { id: '-created', name: 'newest' },
  { id: 'title', name: 'title' },
  { id: '-cost', name: 'cost' }
] as const;
export type SortId = (typeof SORTS)[number]['id'];

export function groupOf(row: Row): GroupId {
  if (ENDED.has(row.state) || row.state === 'empty') {
    return 'done';
  }
  if (row.needs_you > 0) {
    return 'needs';
  }
  return row.state === 'running' || row.state === 'queued' ? 'running' : 'stopped';
}

export interface Choice {
  words: string;
  sort: SortId;
  /** Only sessions of the notebook with this path. */
  notebook: string | null;
  filter?: Filter;
  folded: ReadonlySet<GroupId>;
}

/** What is left out; an empty text and a cost of 0 leave out nothing. `notebook` is a path as it was recorded. */
export interface Filter {
  state: string;
  notebook: string;
  model: string;
  /** Only sessions that cost at least so many US dollars. */
  cost: number;
}

export const EVERYTHING: Filter = { state: '', notebook: '', model: '', cost: 0 };
export const COSTS = [0.01, 0.1, 1, 10] as const;

/** What can be chosen: the states, notebooks and models that occur, in order. */
export function choicesOf(rows: Iterable<Row>): { states: string[]; notebooks: string[]; models: string[] } {
  const [states, notebooks, models] = [new Set<string>(), new Set<string>(), new Set<string>()];
  for (const row of rows) {
    states.add(row.state);
    notebooks.add(row.notebook ?? '');
    models.add(row.model);
  }
  const sorted = (found: Set<string>): string[] => [...found].filter(each => each !== '').sort();
  return { states: sorted(states), notebooks: sorted(notebooks), models: sorted(models) };
}

/** "running · gpt · from $1": what is filtered by, empty when nothing is. */
export function filterText(filter: Filter): string {
  return [
    filter.state,
    filter.notebook === '' ? '' : text.baseName(filter.notebook),
    filter.model,
    filter.cost > 0 ? `from ${text.money(filter.cost)}` : ''
  ]
    .filter(part => part !== '')
    .map(part => text.line(part, 40))
    .join(' · ');
}

function kept(row: Row, filter: Filter): boolean {
  return (
    (filter.state === '' || row.state === filter.state) &&
    (filter.notebook === '' || row.notebook === filter.notebook) &&
    (filter.model === '' || row.model === filter.model) &&
    row.cost_usd >= filter.cost
  );
}

/** A line of the list: the head of a group, or a session. */
export type Item = { kind: 'group'; id: GroupId; name: string; count: number; folded: boolean } | { kind: 'row'; row: Row };

const ORDER: Record<SortId, (a: Row, b: Row) => number> = {
  '-updated': (a, b) => compare(b.updated_at, a.updated_at),
  '-created': (a, b) => compare(b.created_at, a.created_at),
  title: (a, b) => a.title.localeCompare(b.title),
  '-cost': (a, b) => b.cost_usd - a.cost_usd
};

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** All lines in order. While something is searched for, no group is folded. */
export function itemsOf(rows: Iterable<Row>, choice: Choice, ofNotebook: (recorded: string) => boolean = () => true): Item[] {
  const words = choice.words.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const filter = choice.filter ?? EVERYTHING;
  const groups = new Map<GroupId, Row[]>();
  for (const row of rows) {
    if (kept(row, filter) && matches(row, words) && (choice.notebook === null || (row.notebook !== null && ofNotebook(row.notebook)))) {
      const group = groupOf(row);
      const list = groups.get(group);
      if (list === undefined) {
        groups.set(group, [row]);
      } else {
        list.push(row);
      }
    }
  }
  const items: Item[] = [];
  for (const { id, name } of GROUPS) {
    const list = groups.get(id);
    if (list !== undefined) {
      const folded = choice.folded.has(id) && words.length === 0;
      items.push({ kind: 'group', id, name, count: list.length, folded });
      if (!folded) {
        list.sort((a, b) => ORDER[choice.sort](a, b) || compare(a.session_id, b.session_id));
        list.forEach(row => items.push({ kind: 'row', row }));
      }
    }
  }
  return items;
}

function matches(row: Row, words: readonly string[]): boolean {
  if (words.length === 0) {
    return true;
  }
  const all = `${row.title}\n${row.session_id}\n${row.target}\n${row.notebook ?? ''}\n${row.detail}\n${row.state}\n${row.model}`.toLocaleLowerCase();
  return words.every(word => all.includes(word));
}

/** "65 %", or how many are done when nobody knows of how many; empty when there is nothing to count. */
export function progressOf(row: Row): string {
  if (row.state === 'completed' || row.state === 'empty') {
    return '';
  }
  const percent = text.percent(row.done, row.total);
  return percent !== null ? `${percent} %` : row.done > 0 ? `${row.done} done` : '';
}

/** The second line of a row. `now` is in milliseconds since the epoch. */
export function detailOf(row: Row, now: number): string {
  const state = groupOf(row) === 'needs' ? '' : row.state;
  const why = row.problem || row.detail || (row.reason === row.state ? '' : row.reason);
  const parts = [
    why === '' ? state : state === '' || why.startsWith(state) ? text.line(why, 90) : `${state}: ${text.line(why, 90)}`,
    ageOf(row.updated_at, now),
    row.cost_usd > 0 ? text.money(row.cost_usd) : '',
    row.notebook === null ? '' : text.line(text.baseName(row.notebook), 40)
  ];
  return parts.filter(part => part !== '').join(' · ');
}

function ageOf(timestamp: string, now: number): string {
  const at = Date.parse(timestamp);
  return Number.isNaN(at) ? '' : text.shortDuration((now - at) / 1000);
}

/** "2 running, 1 needs you"; empty when nothing goes on. */
export function summaryOf(counts: Counts | null): string {
  if (counts === null) {
    return '';
  }
  const running = (counts.states['running'] ?? 0) + (counts.states['queued'] ?? 0);
  return [
    running > 0 ? `${running} running` : '',
    counts.needs_you > 0 ? `${counts.needs_you} ${counts.needs_you === 1 ? 'needs' : 'need'} you` : ''
  ]
    .filter(part => part !== '')
    .join(', ');
}
