/**
 * A conversation from its events: what was said, what was called, and what that gave. Pure and incremental: `take` is given each
 * event once, in order.
 *
 * A message and the model request that made it are told together: tokens and cost come with the message, the time with the end of
 * the request. A message at a place that was taken replaces what was said from there on, as after a crash in its middle.
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
  /** The model that said it; empty when it is not told. */
  model: string;
  /** What had come of an answer when it was cut short. */
  partial: boolean;
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
  pictures: Picture[];
}

/** A picture that a tool made. */
export interface Picture {
  blob: string;
  mime: 'image/png' | 'image/jpeg';
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
  private readonly calls = new Map<number, Called>();
  /** What was said, by its place in the conversation. */
  private readonly places: Said[] = [];
  private readonly answers = new Map<string, Said>();

  take(event: EventLine): void {
    const body = isFields(event.payload) ? event.payload : {};
    switch (event.event_type) {
      case 'MessageAdded':
        this.said(event, body);
        break;
      case 'PictureMade':
        this.pictured(event, body);
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

  /**
   * What belongs to one task, or everything for an empty id. Of model requests only those that came to nothing are lines, and what
   * tools returned is told with their calls. Answers that only call are left out when there is nothing to read of them.
   */
  of(task: string): Item[] {
    return this.items.filter(item => {
      if (task !== '' && item.task !== task) {
        return false;
      }
      return item.kind === 'called'
        ? !item.model || (item.fate !== 'ok' && item.fate !== 'open')
        : item.role !== 'tool' && (item.role !== 'assistant' || item.text !== '' || item.thinking !== '' || item.blob !== null || item.leftOut !== null);
    });
  }

  /** Whether a model is being asked now. */
  get asking(): boolean {
    return [...this.open.values()].some(call => call.model);
  }

  private said(event: EventLine, body: Record<string, unknown>): void {
    const role = str(body['role']);
    const said: Said = {
      kind: 'said',
      seq: event.seq,
      task: event.task_id ?? '',
      role: ROLES.has(role) ? (role as Role) : 'assistant',
      text: str(body['text']),
      thinking: thinkingOf(body['message']),
      cost: role === 'assistant' ? costOf(event) : null,
      model: str(body['model']) || modelOf(body['message']),
      partial: body['partial'] === true,
      leftOut: event.payload_bytes ?? null,
      blob: strOrNull(body['text_blob'])
    };
    if (!said.partial) {
      const gone = this.places.splice(num(body['index']) ?? this.places.length);
      gone.forEach(each => this.items.splice(this.items.indexOf(each), 1));
      this.places.push(said);
    }
    this.items.push(said);
    if (role === 'assistant') {
      this.answers.set(event.activity_id ?? '', said);
    }
  }

  private pictured(event: EventLine, body: Record<string, unknown>): void {
    const [blob, mime] = [str(body['blob']), body['media_type']];
    if (blob !== '' && (mime === 'image/png' || mime === 'image/jpeg')) {
      this.calls.get(event.parent_event ?? 0)?.pictures.push({ blob, mime });
    }
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
      args: argumentsOf(body['args']),
      result: undefined,
      error: '',
      cost: UNKNOWN,
      argsFrom: elsewhere(event, body, 'args_blob'),
      resultFrom: null,
      pictures: []
    };
    this.items.push(call);
    this.open.set(id, call);
    this.calls.set(event.seq, call);
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
    const { value, told } = outcomeOf(body['result']);
    call.result = value;
    call.error = fate === 'ok' ? told : problem(body);
    call.fate = fate === 'ok' && told !== '' ? 'failed' : fate;
    call.resultFrom = fate === 'ok' ? elsewhere(event, body, 'result_blob') : null;
    const answer = this.answers.get(call.id);
    if (call.model && answer?.cost) {
      answer.cost.ms = call.cost.ms;
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

/** What a call was given: recorded as positional and named values, of which a tool has the latter. */
function argumentsOf(args: unknown): unknown {
  if (Array.isArray(args) && args.length <= 2 && Array.isArray(args[0]) && args[0].length === 0) {
    return args[1];
  }
  return args;
}

/** What a tool's outcome holds: a value, or what was told to the model in its place. */
export function outcomeOf(result: unknown): { value: unknown; told: string } {
  if (isFields(result)) {
    const keys = Object.keys(result);
    if ('return' in result && keys.every(key => key === 'return' || key === 'content' || key === 'metadata')) {
      return { value: result['return'], told: '' };
    }
    const told = result['failed'] ?? result['retry'];
    if (keys.length === 1 && typeof told === 'string') {
      return { value: undefined, told };
    }
  }
  return { value: result, told: '' };
}

function modelOf(message: unknown): string {
  return isFields(message) ? str(message['model_name']) : '';
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
