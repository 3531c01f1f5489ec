/**
 * Events as bars and marks on lanes. Pure and incremental: `take` is given each event once, in order.
 *
 * A bar is one attempt of an activity, a stage, or an approval that waited. Bars that overlap in time get rows of their own, up to
 * `MOST_ROWS`; beyond that they share the last one, so that a thousand parallel activities stay a picture.
 */
import { isFields } from '../guards.js';
import type { EventLine } from '../wire.js';

export type Lane = 'stages' | 'activities' | 'model' | 'tools' | 'approvals' | 'points' | 'branches';
export const LANES: readonly Lane[] = ['stages', 'activities', 'model', 'tools', 'approvals', 'points', 'branches'];
export const LANE_NAMES: Record<Lane, string> = {
  stages: 'stages',
  activities: 'activities',
  model: 'model',
  tools: 'tools',
  approvals: 'approvals',
  points: 'task',
  branches: 'branches'
};

export type Fate = 'open' | 'ok' | 'failed' | 'lost' | 'waits';

export interface Bar {
  lane: Lane;
  id: string;
  name: string;
  attempt: number;
  /** Milliseconds since the epoch; `end` is null while it is open. */
  start: number;
  end: number | null;
  fate: Fate;
  first: number;
  last: number;
  row: number;
  note: string;
}

export type MarkKind = 'checkpoint' | 'fork' | 'state' | 'control' | 'alarm' | 'file' | 'other';

export interface Mark {
  lane: Lane;
  kind: MarkKind;
  at: number;
  seq: number;
  name: string;
  bad: boolean;
}

export const MOST_ROWS = 4;

const STATE_MARKS: Record<string, string> = {
  TaskQueued: 'queued',
  TaskStarted: 'started',
  TaskSuspended: 'suspended',
  TaskInterrupted: 'interrupted',
  TaskResumed: 'resumed',
  TaskCompleted: 'completed',
  TaskFailed: 'failed',
  TaskCancelled: 'cancelled',
  RecoveryCompleted: 'recovered'
};

export class Lanes {
  readonly bars: Bar[] = [];
  readonly marks: Mark[] = [];
  readonly seqs: number[] = [];
  readonly times: number[] = [];
  /** How many rows each lane needs. */
  readonly rows: Record<Lane, number> = { stages: 1, activities: 1, model: 1, tools: 1, approvals: 1, points: 1, branches: 1 };
  private readonly open = new Map<string, Bar>();
  private readonly busyUntil: Record<Lane, number[]> = {
    stages: [],
    activities: [],
    model: [],
    tools: [],
    approvals: [],
    points: [],
    branches: []
  };

  get begin(): number {
    return this.times[0] ?? 0;
  }

  get end(): number {
    return this.times[this.times.length - 1] ?? 0;
  }

  get lastSeq(): number {
    return this.seqs[this.seqs.length - 1] ?? 0;
  }

  /** The newest event at or before a time, as its index; -1 before the first. */
  indexAt(time: number): number {
    let [low, high] = [0, this.times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.times[middle] ?? 0) <= time) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  /** Where the newest event up to `seq` is; -1 before the first. */
  indexAtSeq(seq: number): number {
    let [low, high] = [0, this.seqs.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.seqs[middle] ?? 0) <= seq) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  take(event: EventLine): void {
    // what a clock says may run backwards; the order of events does not
    const at = Math.max(Date.parse(event.timestamp) || this.end, this.end);
    this.seqs.push(event.seq);
    this.times.push(at);
    const body = isFields(event.payload) ? event.payload : {};
    const id = event.activity_id ?? '';
    switch (event.event_type) {
      case 'ActivityStarted':
        this.started(event, at, body, id);
        break;
      case 'ActivityCompleted':
        this.close(id, at, event.seq, 'ok', '');
        break;
      case 'ActivityFailed':
        this.close(id, at, event.seq, 'failed', problem(body));
        break;
      case 'CheckFailed':
        this.close(id, at, event.seq, 'failed', str(body['why']));
        break;
      case 'ActivityRetried':
        this.retried(event, at, body, id);
        break;
      case 'ApprovalRequested':
        this.begins('approvals', `ask ${str(body['approval_id'])}`, str(body['question']) || 'approval', 1, at, event.seq, 'waits');
        break;
      case 'ApprovalResolved': {
        const said = str(body['choice']) || str(body['answer']);
        this.close(`ask ${str(body['approval_id'])}`, at, event.seq, body['answer'] === 'denied' ? 'failed' : 'ok', said);
        break;
      }
      default:
        this.marked(event, at, body);
    }
  }

  private started(event: EventLine, at: number, body: Record<string, unknown>, id: string): void {
    const known = this.open.get(id);
    if (known !== undefined && known.first === known.last && known.attempt === (event.attempt ?? 1)) {
      known.start = at; // the attempt that a retry announced
      return;
    }
    this.close(id, at, event.seq, 'lost', 'outcome unknown');
    this.begins(laneOf(str(body['kind'])), id, str(body['name']) || id, event.attempt ?? 1, at, event.seq, 'open', keyOf(body));
  }

  private retried(event: EventLine, at: number, body: Record<string, unknown>, id: string): void {
    const failed = this.close(id, at, event.seq, 'failed', problem(body));
    const wait = typeof body['wait_s'] === 'number' ? body['wait_s'] * 1000 : 0;
    const attempt = (event.attempt ?? failed?.attempt ?? 1) + 1;
    this.begins(failed?.lane ?? 'activities', id, failed?.name ?? str(body['name']), attempt, at + wait, event.seq, 'open');
  }

  private begins(lane: Lane, id: string, name: string, attempt: number, start: number, seq: number, fate: Fate, note = ''): void {
    const row = this.freeRow(lane, start);
    const bar: Bar = { lane, id, name, attempt, start, end: null, fate, first: seq, last: seq, row, note };
    this.bars.push(bar);
    this.open.set(id, bar);
  }

  private close(id: string, at: number, seq: number, fate: Fate, note: string): Bar | undefined {
    const bar = this.open.get(id);
    if (bar !== undefined) {
      this.open.delete(id);
      bar.end = Math.max(at, bar.start);
      bar.fate = fate;
      bar.last = seq;
      bar.note = [bar.note, note].filter(part => part !== '').join(' · ');
      this.busyUntil[bar.lane][bar.row] = bar.end;
    }
    return bar;
  }

  private freeRow(lane: Lane, start: number): number {
    const busy = this.busyUntil[lane];
    let row = busy.findIndex(until => until <= start);
    if (row < 0) {
      row = Math.min(busy.length, MOST_ROWS - 1);
    }
    busy[row] = Infinity;
    this.rows[lane] = Math.max(this.rows[lane], row + 1);
    return row;
  }

  private marked(event: EventLine, at: number, body: Record<string, unknown>): void {
    const type = event.event_type;
    const put = (lane: Lane, kind: MarkKind, name: string, bad = false): void => {
      this.marks.push({ lane, kind, at, seq: event.seq, name, bad });
    };
    const state = STATE_MARKS[type];
    if (state !== undefined) {
      if (type === 'TaskSuspended' && body['reason'] === 'worker_lost') {
        this.loseOpen(at, event.seq);
      }
      put('points', 'state', `${state}${body['reason'] ? `: ${str(body['reason'])}` : ''}`, type === 'TaskFailed' || body['reason'] === 'worker_lost');
    } else if (type === 'CheckpointCreated') {
      put('stages', 'checkpoint', `checkpoint ${str(body['label']) || str(body['trigger'])}`);
    } else if (type === 'SessionForked') {
      put('branches', 'fork', `forked from ${str(body['parent_session'])} at ${String(body['parent_seq'])}`);
    } else if (type === 'ControlRequested') {
      put('points', 'control', `${str(body['action'])} by ${event.actor ?? 'engine'}`, body['outcome'] === 'refused');
    } else if (type === 'AlarmRaised' || type === 'ErrorOccurred' || type === 'BudgetExceeded') {
      put('points', 'alarm', str(body['text']) || str(body['error']) || type, true);
    } else if (type === 'FileWritten') {
      put('tools', 'file', str(body['path']));
    }
  }

  /** The process died: what was open has no known outcome. */
  private loseOpen(at: number, seq: number): void {
    for (const [id, bar] of [...this.open]) {
      if (bar.lane !== 'approvals' && bar.lane !== 'stages') {
        this.close(id, at, seq, 'lost', 'outcome unknown');
      }
    }
  }
}

export function laneOf(kind: string): Lane {
  return kind === 'stage' ? 'stages' : kind === 'model' ? 'model' : kind === 'tool' ? 'tools' : 'activities';
}

const str = (value: unknown): string => (typeof value === 'string' ? value : '');
const problem = (body: Record<string, unknown>): string => [str(body['error_type']), str(body['error'])].filter(Boolean).join(': ');
const keyOf = (body: Record<string, unknown>): string => (str(body['key']) ? `key ${str(body['key'])}` : '');
