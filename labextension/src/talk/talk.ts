/**
 * A conversation from its events: what was said, what was called, and what that gave. Pure and incremental: `take` is given each
 * event once, in order.
 *
 * A message and the model request that made it are two events; the request's tokens, cost and time are told with the message.
 */
import { isFields } from '../guards.js';
import type { EventLine } from '../wire.js';

export type Role = 'user' | 'assistant' | 'tool' | 'system';
export type Fate = 'open' | 'ok' | 'failed' | 'lost';

/** What something took; null where it is not known. */
export interface Cost {
  ms: number | null;
  input: number | null;
  output: number | null;
  usd: number | null;
}

export interface Said {
  kind: 'said';
  seq: number;
  task: string;
  role: Role;
  text: string;
  /** What the model thought aloud before it, when it is told. */
  thinking: string;
  cost: Cost | null;
  /** Bytes that were not sent; the text is empty then. */
  leftOut: number | null;
  blob: string | null;
}

export interface Called {
  kind: 'called';
  seq: number;
  task: string;
  id: string;
  name: string;
  model: boolean;
  effect: string;
  attempt: number;
  fate: Fate;
  /** JSON values; undefined where there is none. */
  args: unknown;
  result: unknown;
  error: string;
  cost: Cost;
  /** Where what was left out can be read: the events, and the blobs. */
  argsFrom: Elsewhere | null;
  resultFrom: Elsewhere | null;
}

export interface Elsewhere {
  seq: number;
  blob: string | null;
  bytes: number | null;
}

export type Item = Said | Called;

const UNKNOWN: Cost = { ms: null, input: null, output: null, usd: null };
const ROLES: ReadonlySet<string> = new Set(['user', 'assistant', 'tool', 'system']);

export class Talk {
  readonly items: Item[] = [];
  /** The last event that was looked at. */
  seq = 0;
  private readonly open = new Map<string, Called>();
  private request: Called | null = null;

  take(event: EventLine): void {
    const body = isFields(event.payload) ? event.payload : {};
    switch (event.event_type) {
      case 'MessageAdded':
        this.said(event, body);
        break;
      case 'ActivityStarted':
        if (body['kind'] === 'model' || body['kind'] === 'tool' || leftOut(event)) {
          this.started(event, body);
        }
        break;
      case 'ActivityCompleted':
        this.ended(event, body, 'ok');
        break;
      case 'ActivityFailed':
        this.ended(event, body, body['aborted'] === true ? 'lost' : 'failed');
        break;
      case 'ActivityRetried':
        this.retried(event, body);
        break;
      case 'TaskSuspended':
        if (body['reason'] === 'worker_lost') {
          this.loseOpen();
        }
        break;
      case 'TaskInterrupted':
      case 'TaskFailed':
      case 'TaskCompleted':
        this.loseOpen();
        break;
      default: // a task begins; messages say for whom
    }
  }

  /** What belongs to one task, or everything for an empty id. Of model requests only those that came to nothing are lines. */
  of(task: string): Item[] {
    return this.items.filter(item => (task === '' || item.task === task) && !(item.kind === 'called' && item.model && (item.fate === 'ok' || item.fate === 'open')));
  }

  /** Whether a model is being asked now. */
  get asking(): boolean {
    return [...this.open.values()].some(call => call.model);
  }

  private said(event: EventLine, body: Record<string, unknown>): void {
    const role = str(body['role']);
    const request = role === 'assistant' ? this.request : null;
    if (request !== null) {
      this.request = null;
    }
    this.items.push({
      kind: 'said',
      seq: event.seq,
      task: event.task_id ?? '',
      role: ROLES.has(role) ? (role as Role) : 'assistant',
      text: str(body['text']),
      thinking: thinkingOf(body['message']),
      cost: request?.cost ?? (role === 'assistant' ? costOf(event) : null),
      leftOut: event.payload_bytes ?? null,
      blob: strOrNull(body['text_blob'])
    });
  }

  private started(event: EventLine, body: Record<string, unknown>): void {
    const id = event.activity_id ?? '';
    this.lose(id);
    const call: Called = {
      kind: 'called',
      seq: event.seq,
      task: event.task_id ?? '',
      id,
      name: str(body['name']) || (id.split('/').pop() ?? id),
      model: body['kind'] === 'model',
      effect: str(body['effect']),
      attempt: event.attempt ?? 1,
      fate: 'open',
      args: body['args'],
      result: undefined,
      error: '',
      cost: UNKNOWN,
      argsFrom: elsewhere(event, body, 'args_blob'),
      resultFrom: null
    };
    this.items.push(call);
    this.open.set(id, call);
  }

  private ended(event: EventLine, body: Record<string, unknown>, fate: Fate): void {
    const call = this.open.get(event.activity_id ?? '');
    if (call === undefined) {
      return;
    }
    this.open.delete(call.id);
    call.fate = fate;
    call.attempt = event.attempt ?? call.attempt;
    call.cost = costOf(event);
    call.result = body['result'];
    call.error = fate === 'ok' ? '' : problem(body);
    call.resultFrom = fate === 'ok' ? elsewhere(event, body, 'result_blob') : null;
    if (call.model && fate === 'ok') {
      this.request = call;
    }
  }

  private retried(event: EventLine, body: Record<string, unknown>): void {
    const call = this.open.get(event.activity_id ?? '');
    if (call !== undefined) {
      call.attempt = (event.attempt ?? call.attempt) + 1;
      call.error = problem(body);
    }
  }

  private lose(id: string): void {
    const call = this.open.get(id);
    if (call !== undefined) {
      call.fate = 'lost';
      this.open.delete(id);
    }
  }

  private loseOpen(): void {
    [...this.open.keys()].forEach(id => this.lose(id));
  }
}

const str = (value: unknown): string => (typeof value === 'string' ? value : '');
const strOrNull = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);
const num = (value: unknown): number | null => (typeof value === 'number' ? value : null);
const problem = (body: Record<string, unknown>): string => [str(body['error_type']), str(body['error'])].filter(Boolean).join(': ');
const leftOut = (event: EventLine): boolean => typeof event.payload_bytes === 'number';

function costOf(event: EventLine): Cost {
  return { ms: num(event.execution_time_ms), input: num(event.input_tokens), output: num(event.output_tokens), usd: num(event.cost_usd) };
}

function elsewhere(event: EventLine, body: Record<string, unknown>, key: string): Elsewhere | null {
  const blob = strOrNull(body[key]);
  if (blob === null && !leftOut(event)) {
    return null;
  }
  return { seq: event.seq, blob, bytes: blob === null ? (event.payload_bytes ?? null) : (event.blobs?.[blob] ?? null) };
}

/** The thinking parts of a recorded model message. */
function thinkingOf(message: unknown): string {
  const parts = isFields(message) && Array.isArray(message['parts']) ? message['parts'] : [];
  return parts
    .filter(isFields)
    .filter(part => part['part_kind'] === 'thinking')
    .map(part => str(part['content']))
    .filter(part => part !== '')
    .join('\n\n');
}
