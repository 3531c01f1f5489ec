/**
 * What comes from the server is checked once, here, and trusted behind it.
 *
 * The checks are about shape, for the fields that this page reads: an answer from another version, a proxy's login page or a
 * truncated body becomes one clear error in place of `undefined` somewhere in a view.
 */
import type {
  Aftermath,
  Ask,
  Card,
  Compared,
  Counts,
  EventLine,
  EventPage,
  Loss,
  Outcome,
  Page,
  Problem,
  Row,
  Shown,
  States,
  Status
} from './wire.js';

/** An answer that is not what the contract says. */
export class NotUnderstood extends Error {
  constructor(what: string) {
    super(`the server part of ipyagent answered something that this page does not understand: ${what}`);
    this.name = 'NotUnderstood';
  }
}

type Fields = Record<string, unknown>;

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const isText = (value: unknown): value is string => typeof value === 'string';
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const isFlag = (value: unknown): value is boolean => typeof value === 'boolean';
const orNull =
  (check: (value: unknown) => boolean) =>
  (value: unknown): boolean =>
    value === null || value === undefined || check(value);
const listOf =
  (check: (value: unknown) => boolean) =>
  (value: unknown): boolean =>
    Array.isArray(value) && value.every(check);
const mapOf =
  (check: (value: unknown) => boolean) =>
  (value: unknown): boolean =>
    isFields(value) && Object.values(value).every(check);

type Shape = Record<string, (value: unknown) => boolean>;

function fits(value: unknown, shape: Shape): value is Fields {
  return isFields(value) && Object.entries(shape).every(([name, check]) => check(value[name]));
}

function misfit(value: unknown, shape: Shape): string {
  if (!isFields(value)) {
    return 'not an object';
  }
  return Object.keys(shape).find(name => !shape[name]?.(value[name])) ?? '';
}

function reader<T>(name: string, shape: Shape): (value: unknown) => T {
  return value => {
    if (!fits(value, shape)) {
      throw new NotUnderstood(`${name}.${misfit(value, shape)}`);
    }
    return value as T;
  };
}

const ASK: Shape = {
  approval_id: isText,
  question: isText,
  details: isText,
  digest: isText,
  choices: listOf(isText),
  if_ignored: isText,
  since_s: isNumber
};
export const isAsk = (value: unknown): value is Ask => fits(value, ASK);

const CARD: Shape = {
  session_id: isText,
  task_id: isText,
  title: isText,
  target: isText,
  state: isText,
  headline: isText,
  elapsed_s: isNumber,
  done: isNumber,
  total: orNull(isNumber),
  failed: isNumber,
  stage: isText,
  stage_name: isText,
  now: listOf(isText),
  text: isText,
  remaining_s: orNull(isNumber),
  remaining_basis: isText,
  checkpoint_age_s: orNull(isNumber),
  checkpoint_label: isText,
  checkpoint_next_s: orNull(isNumber),
  durability: isText,
  risk: isText,
  cpu_percent: orNull(isNumber),
  memory: orNull(isNumber),
  memory_total: orNull(isNumber),
  disk_used_percent: orNull(isNumber),
  tokens: isNumber,
  cost_usd: isNumber,
  asks: listOf(isAsk),
  alarms: listOf(isText),
  actions: mapOf(isText),
  seq: isNumber
};
export const asCard: (value: unknown) => Card = reader('card', CARD);

const SHOWN: Shape = { session_id: isText, card: value => fits(value, CARD), partial: isText, silent_since: orNull(isNumber) };
export const asShown: (value: unknown) => Shown = value => {
  if (isFields(value)) {
    asCard(value['card']); // names the field that is wrong
  }
  return reader<Shown>('shown', SHOWN)(value);
};

/**
 * What is known of a session besides its picture. `forkedAt` is the seq of its `parent` at which it begins, `ends` the last event
 * of each of its tasks, `definition` the module of its workflow (`__main__`: the kernel of its notebook).
 */
export interface Known {
  shown: Shown;
  title: string;
  notebook: string | null;
  cell: string | null;
  definition: string;
  children: string[];
  parent: string | null;
  forkedAt: number | null;
  ends: ReadonlyMap<string, number>;
}

export const asKnown: (value: unknown) => Known = value => {
  const fields = isFields(value) ? value : {};
  const header = isFields(fields['header']) ? fields['header'] : {};
  const parent = isFields(header['parent']) ? header['parent'] : {};
  const text = (from: Fields, name: string): string | null => (isText(from[name]) ? from[name] : null);
  const list = (name: string): unknown[] => (Array.isArray(fields[name]) ? (fields[name] as unknown[]) : []);
  const ends = new Map<string, number>();
  for (const task of list('tasks').filter(isFields)) {
    if (isText(task['task_id']) && isNumber(task['last_seq'])) {
      ends.set(task['task_id'], task['last_seq']);
    }
  }
  return {
    shown: asShown(fields['shown']),
    title: text(fields, 'title') ?? '',
    notebook: text(header, 'notebook'),
    cell: text(fields, 'cell'),
    definition: text(fields, 'definition') ?? '',
    children: list('children').filter(isText),
    parent: text(parent, 'session'),
    forkedAt: isNumber(parent['seq']) ? parent['seq'] : null,
    ends
  };
};

export const asAftermath: (value: unknown) => Aftermath = reader('aftermath', {
  at: isNumber,
  nearest: orNull(isNumber),
  open: listOf(isText),
  ended: isFlag,
  effects: listOf(isText),
  more: isNumber
});

export const asLoss: (value: unknown) => Loss = reader('loss', {
  session_id: isText,
  title: isText,
  state: isText,
  events: isNumber,
  tasks: isNumber,
  needs_you: isNumber,
  cost_usd: isNumber,
  bytes: isNumber,
  forks: listOf(isText),
  problem: isText
});

const SIDE: Shape = { title: isText, card: value => fits(value, CARD) };
const DIFFERENCE: Shape = { what: isText, name: isText, left: orNull(isText), right: orNull(isText) };
const COMPARISON: Shape = {
  parted_in: orNull(isText),
  parted_at: orNull(isNumber),
  differences: listOf(each => fits(each, DIFFERENCE)),
  same: isNumber,
  more: isNumber
};
export const asCompared: (value: unknown) => Compared = reader('compared', {
  left: value => fits(value, SIDE),
  right: value => fits(value, SIDE),
  comparison: value => fits(value, COMPARISON)
});

const ROW: Shape = {
  session_id: isText,
  state: isText,
  title: isText,
  task_id: orNull(isText),
  notebook: orNull(isText),
  done: isNumber,
  total: orNull(isNumber),
  needs_you: isNumber,
  cost_usd: isNumber,
  created_at: isText,
  updated_at: isText
};
export const asRow: (value: unknown) => Row = reader('row', ROW);

const COUNTS: Shape = { total: isNumber, needs_you: isNumber, states: mapOf(isNumber) };
export const asCounts: (value: unknown) => Counts = reader('counts', COUNTS);

export const asPage: (value: unknown) => Page = reader('page', {
  rows: listOf(row => fits(row, ROW)),
  next: orNull(isText),
  matched: isNumber,
  counts: value => fits(value, COUNTS),
  revision: isNumber,
  filling: isFlag
});

const EVENT: Shape = { seq: isNumber, event_type: isText, timestamp: isText };
export const asEvent: (value: unknown) => EventLine = reader('event', EVENT);
export const asEventPage: (value: unknown) => EventPage = reader('events', {
  events: listOf(event => fits(event, EVENT)),
  next: orNull(isNumber),
  until: isNumber
});

export const asStates: (value: unknown) => States = reader('states', { cards: listOf(card => fits(card, CARD)) });

export const asStatus: (value: unknown) => Status = reader('status', {
  api: isNumber,
  version: isText,
  store_id: isText,
  differences: listOf(isText)
});

export const asOutcome: (value: unknown) => Outcome = reader('outcome', { outcome: isText, action: isText });

export const asProblem: (value: unknown) => Problem = reader('problem', {
  error: isText,
  message: isText,
  hint: isText,
  status: isNumber
});

/** The custom key of an output: ids and nothing else; whatever more a notebook brings is not looked at. */
export interface TaskRef {
  session_id: string;
  task_id: string;
}

/** What the id of a session looks like; the engine's `place.ID`. */
export const SESSION_ID = /^[a-z0-9]{2,40}$/;
const TASK_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** The ids of an output, or null when they are not ids. */
export function taskRefOf(value: unknown): TaskRef | null {
  if (!isFields(value)) {
    return null;
  }
  const { session_id, task_id } = value;
  return isText(session_id) && SESSION_ID.test(session_id) && isText(task_id) && (task_id === '' || TASK_ID.test(task_id))
    ? { session_id, task_id }
    : null;
}
